"""Classification of multivariate time series: ten sets of the UEA archive."""
