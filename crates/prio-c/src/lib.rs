//! The shared library `libfurrow_log.so`: logs in ordinary files ([`prio::LogFile`]) for C (`include/furrow_log.h`) and Java (`java/furrow/LogFile.java`).

mod c;
mod java;
