"""One module per source of data: the official files of published data sets."""
