//! The shared library `libfurrow_log.so`: logs in ordinary files and on zoned drives ([`logs::Log`]) for C (`include/furrow_log.h`) and Java (`java/furrow/LogFile.java`).

mod c;
mod java;
