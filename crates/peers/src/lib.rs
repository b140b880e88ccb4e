//! The connections between the processes of a cluster.
#![forbid(unsafe_code)]
