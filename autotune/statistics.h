// Statistics that outliers do not move: on a shared machine some runs take many times as long as others.
#pragma once

#include <vector>

namespace hattn::autotune {

double median(std::vector<double> values);  // 0 of none

// Of a sample's median: what it may be off by, about twice its standard error, from the median absolute deviation.
double uncertainty(const std::vector<double> &values);

// Spearman's rank correlation; 0 for fewer than three values. Ties share their mean rank.
double rank_correlation(const std::vector<double> &a, const std::vector<double> &b);

}  // namespace hattn::autotune
