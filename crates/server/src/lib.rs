//! HTTP around a service: the doors every client speaks, keys, limits, metrics, the web page.
#![forbid(unsafe_code)]
