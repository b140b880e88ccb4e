//! The log's writer as a process of its own ([`How::Process`](crate::How::Process)): for programs without `CAP_SYS_NICE`, since the writer's file may have it
//! (`setcap cap_sys_nice+ep furrow-prio-writer`).
//!
//! ```text
//!   program                                          furrow-prio-writer
//!                  <--- version ------------------- stdin
//!                ----- the file's descriptor -----> stdin
//!   start() ---- requests, a message each ---------> stdin ---> a thread ---> the log's file
//!   reader thread <--- replies, in any order ------- stdin
//! ```
//!
//! The two share a socket that keeps messages apart (`SOCK_SEQPACKET`). The program opens the log's file, with its own rights, and sends the descriptor. When the writer dies all
//! requests fail, which poisons the log. The writer ends when its socket does, and ignores the signals that end a process group.

mod message;
mod program;
mod writer;

pub(crate) use program::ProcessStorage;
pub use writer::serve;
