"""Classification of time series: ten sets of the UEA archive, and sets of users."""
