//! Integration tests of the device contract and its backends. They are one program, because linking a program for each file takes longer than the
//! tests of most files.

mod conformance;
mod profiles;
