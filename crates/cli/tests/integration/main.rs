//! Integration tests of the program. They are one program, because linking a program for each file takes longer than the
//! tests of most files.

mod array;
mod bench;
mod cli;
mod common;
mod figures;
mod scripts;
