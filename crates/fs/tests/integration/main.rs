//! Integration tests of the file system. They are one program, because linking a program for each file takes longer than the
//! tests of most files.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic")]

mod basics;
mod common;
mod conventional_logs;
mod damage;
mod foreign_zones;
mod full;
mod idle_logs;
mod joined_records;
mod log_reading;
mod log_zones;
mod operations;
mod ordered_log_defects;
mod own_zones;
mod page_cache;
mod parallel_failures;
mod parallel_log;
mod parallel_log_defects;
mod parallel_power_cuts;
mod power_cuts;
mod roles;
mod striped_log;
mod stripes;
mod superblocks;
mod threads;
mod write_back;
mod write_back_on_full_drives;
mod zenfs_defects;
