//! Open logs without recent writes give up their zones for logs that need one.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::common::{Drive, bytes, log, read};
use fs::{ErrorKind, Fs, MountOptions, Writer};
use parking_lot::Mutex;
use units::{Blocks, Driver, sleep_until, spawn};
use zoned::emu::{Choose, Emu, EmuOptions, Exhaustive, Latency, Media, Seeded};
use zoned::{Action, Geometry, Io, Op, ZonedDevice};

/// Numbers of bytes that the test has appended and synced, for each log.
type Lengths = [(usize, usize); 3];

/// A drive that counts finishes. While `moments` is set, it keeps the medium's content before and after each
/// operation.
#[derive(Debug)]
struct Recorder {
    emu: Arc<Emu>,
    finishes: AtomicU64,
    lengths: Mutex<Lengths>,
    moments: Mutex<Option<Vec<(Media, Lengths)>>>,
}

impl Recorder {
    fn over(emu: &Arc<Emu>) -> Arc<Recorder> {
        let (lengths, moments) = (Mutex::default(), Mutex::default());
        Arc::new(Recorder { emu: Arc::clone(emu), finishes: AtomicU64::new(0), lengths, moments })
    }

    fn remember(&self) {
        if let Some(moments) = &mut *self.moments.lock() {
            moments.push((self.emu.media(), *self.lengths.lock()));
        }
    }

    fn finishes(&self) -> u64 {
        self.finishes.load(Ordering::Relaxed)
    }
}

impl ZonedDevice for Recorder {
    fn geometry(&self) -> &Geometry {
        self.emu.geometry()
    }

    fn submit(&self, op: Op) -> Io {
        if matches!(op, Op::Zone { action: Action::Finish, .. }) {
            self.finishes.fetch_add(1, Ordering::Relaxed);
        }
        if matches!(op, Op::Read { .. } | Op::Report { .. }) {
            return self.emu.submit(op);
        }
        self.remember();
        let io = self.emu.submit(op);
        self.remember();
        io
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.emu.driver()
    }
}

/// A drive on which two logs may have a zone each, but not a third one.
fn two_logs_fit() -> EmuOptions {
    EmuOptions {
        max_open: Some(4),
        max_active: Some(4),
        latency: Latency::all(Duration::from_micros(10)),
        ..EmuOptions::tiny()
    }
}

fn mounted(options: EmuOptions) -> (Drive, Arc<Recorder>, Fs) {
    let drive = Drive::new(options);
    drive.format();
    let recorder = Recorder::over(&drive.emu);
    let fs = drive.run(Fs::mount(recorder.clone(), &MountOptions::default())).unwrap();
    (drive, recorder, fs)
}

async fn pause(fs: &Fs, time: Duration) {
    sleep_until(&**fs.driver(), fs.driver().now().after(time)).await;
}

/// The path of log `log`, in a directory of its own: the older logs of a directory are synced before a new
/// one is written.
fn log_path(log: usize) -> String {
    format!("/{log}/a.log")
}

/// The expected bytes of log `log` from `from` on.
fn log_bytes(log: usize, from: usize, len: usize) -> Vec<u8> {
    bytes(from + len, log as u8).split_off(from)
}

/// Three logs whose appended and synced lengths the recorder knows.
struct ThreeLogs {
    fs: Fs,
    recorder: Arc<Recorder>,
    writers: Vec<Arc<Writer>>,
}

impl ThreeLogs {
    async fn create(fs: &Fs, recorder: &Arc<Recorder>) -> ThreeLogs {
        let mut writers = Vec::new();
        for n in 0..3 {
            fs.mkdir(&format!("/{n}")).await.unwrap();
            writers.push(Arc::new(fs.create(&log_path(n), &log()).await.unwrap()));
        }
        ThreeLogs { fs: fs.clone(), recorder: Arc::clone(recorder), writers }
    }

    async fn append(&self, log: usize, len: usize) {
        let from = self.recorder.lengths.lock()[log].0;
        self.recorder.lengths.lock()[log].0 += len;
        self.writers[log].append(&log_bytes(log, from, len)).await.unwrap();
    }

    async fn sync(&self, log: usize) {
        let appended = self.recorder.lengths.lock()[log].0;
        self.writers[log].sync().await.unwrap();
        self.recorder.lengths.lock()[log].1 = appended;
    }

    async fn are_whole(&self) {
        let lengths = *self.recorder.lengths.lock();
        for (n, (appended, _)) in lengths.into_iter().enumerate() {
            assert!(read(&self.fs, &log_path(n)).await.unwrap() == bytes(appended, n as u8), "log {n}");
        }
    }
}

#[test]
fn logs_that_are_synced_in_turn_keep_their_zones() {
    let (drive, recorder, fs) = mounted(two_logs_fit());
    drive.run(async {
        let logs = ThreeLogs::create(&fs, &recorder).await;
        for n in [0, 1] {
            logs.append(n, 100).await;
            logs.sync(n).await;
        }
        let third = {
            let (fs, writer) = (fs.clone(), Arc::clone(&logs.writers[2]));
            spawn(&*drive.driver, "third", async move {
                let begun = fs.driver().now();
                let error = writer.append(b"no zone is left for this").await.unwrap_err();
                (error.kind(), fs.driver().now().since(begun))
            })
        };
        let zones = |fs: &Fs| fs.zone_map().iter().map(|z| (z.zone, z.role)).collect::<Vec<_>>();
        let before = zones(&fs);
        for round in 0..14 {
            logs.append(round % 2, 100).await;
            logs.sync(round % 2).await;
            pause(&fs, Duration::from_millis(450)).await;
        }
        let (kind, waited) = third.await;
        assert_eq!(kind, ErrorKind::Busy);
        assert!(waited >= Duration::from_secs(5), "{waited:?}");
        assert_eq!(zones(&fs), before, "no log changed its zone");
        assert_eq!(recorder.finishes(), 0);
        logs.are_whole().await;
    });
}

#[test]
fn an_idle_log_gives_the_rest_of_its_zone_to_the_next_log() {
    let (drive, recorder, fs) = mounted(two_logs_fit());
    drive.run(async {
        let logs = ThreeLogs::create(&fs, &recorder).await;
        for n in [0, 1] {
            logs.append(n, 100).await;
            logs.sync(n).await;
        }
        let used = |fs: &Fs| fs.zone_map().iter().filter(|z| z.role == fs::ZoneRole::Log).count();
        assert_eq!(used(&fs), 2);
        let begun = fs.driver().now();
        logs.append(2, 100).await;
        logs.sync(2).await;
        let waited = fs.driver().now().since(begun);
        assert!((Duration::from_millis(990)..Duration::from_millis(1100)).contains(&waited), "{waited:?}");
        assert_eq!((used(&fs), recorder.finishes()), (2, 0), "the zone has segments of two logs");
        // Each log in turn needs a zone that another log has.
        for round in 0..9 {
            pause(&fs, Duration::from_secs(2)).await;
            logs.append(round % 3, 100).await;
            logs.sync(round % 3).await;
        }
        assert_eq!(recorder.finishes(), 0);
        logs.are_whole().await;
        for writer in &logs.writers {
            writer.close().await.unwrap();
        }
        logs.are_whole().await;
        fs.unmount().await.unwrap();
    });
    drive.check();
}

#[test]
fn an_unsynced_log_keeps_its_zone() {
    let (drive, recorder, fs) = mounted(two_logs_fit());
    drive.run(async {
        let logs = ThreeLogs::create(&fs, &recorder).await;
        for n in [0, 1] {
            logs.append(n, 100).await;
            logs.writers[n].flush().await.unwrap();
        }
        pause(&fs, Duration::from_secs(10)).await;
        assert_eq!(logs.writers[2].append(b"no zone").await.unwrap_err().kind(), ErrorKind::Busy);
    });
}

/// Three logs on two zones: every append needs a zone that another log gives up. Returns the moments at which
/// the power may fail. `last`: bytes that the idle logs wrote to their zones.
fn moments_of_a_release(last: usize) -> (u64, Vec<(Media, Lengths)>) {
    // The rest of a log zone is finished if it has fewer than two blocks.
    let zone = EmuOptions { zone_size: Blocks(32), zone_capacity: Blocks(32), ..two_logs_fit() };
    let (drive, recorder, fs) = mounted(zone);
    drive.run(async {
        let logs = ThreeLogs::create(&fs, &recorder).await;
        for n in [0, 1] {
            logs.append(n, last).await;
            logs.sync(n).await;
        }
        pause(&fs, Duration::from_secs(2)).await;
        *recorder.moments.lock() = Some(Vec::new());
        logs.append(2, 3000).await;
        logs.writers[2].flush().await.unwrap();
        logs.sync(2).await;
        // The first log continues in the zone that the second one gives up.
        logs.append(0, 3000).await;
        logs.writers[0].flush().await.unwrap();
        logs.append(2, 3000).await;
        logs.sync(0).await;
        logs.sync(2).await;
        logs.are_whole().await;
    });
    let moments = recorder.moments.lock().take().unwrap();
    (recorder.finishes(), moments)
}

/// Mounts the drive after a power cut, and checks that each log has a prefix of its appended bytes, with all
/// synced ones.
fn check_after_cut(media: &Media, lengths: &Lengths, choose: &mut dyn Choose, what: &str) {
    let drive = Drive::from_media(media.cut(choose));
    let fs = drive.mount();
    drive.run(async {
        for (n, (appended, synced)) in lengths.iter().enumerate() {
            let found = read(&fs, &log_path(n)).await.unwrap();
            let whole = bytes(*appended, n as u8);
            assert!(whole.starts_with(&found), "{what}: log {n} has foreign bytes");
            assert!(found.len() >= *synced, "{what}: log {n} has {} of {synced} bytes", found.len());
            // Each log can be continued after the power cut, and its new bytes are found again.
            let writer = fs.open_append(&log_path(n)).await.unwrap();
            writer.append(b"more").await.unwrap();
            writer.sync().await.unwrap();
            writer.close().await.unwrap();
            assert_eq!(read(&fs, &log_path(n)).await.unwrap(), [&*found, b"more"].concat(), "{what}");
        }
        fs.unmount().await.unwrap();
    });
    drive.check();
}

#[test]
fn a_power_cut_between_release_finish_and_next_segment_takes_no_synced_byte() {
    const SEEDS: u64 = 24;
    const MOST: usize = 200;
    // The idle logs: short, with a rest of the zone that is too small to be kept, and filling the zone.
    for (last, finished) in [(3000, false), (30 * 4096 + 3000, true), (31 * 4096, false)] {
        let (finishes, moments) = moments_of_a_release(last);
        assert_eq!(finishes > 0, finished, "{finishes} finishes");
        assert!(moments.len() > 20, "{} moments", moments.len());
        let mut states = 0;
        for (at, (media, lengths)) in moments.iter().enumerate() {
            let mut all = Exhaustive::new();
            let mut tried = 0;
            while tried < MOST && all.next() {
                check_after_cut(
                    media,
                    lengths,
                    &mut all,
                    &format!("{last} bytes, moment {at}, state {tried}"),
                );
                tried += 1;
            }
            // The power cut has too many outcomes: a sample of them all is checked.
            for seed in (0..SEEDS).filter(|_| tried == MOST) {
                let what = format!("{last} bytes, moment {at}, seed {seed}");
                check_after_cut(media, lengths, &mut Seeded::new(seed), &what);
            }
            states += tried;
        }
        assert!(states > moments.len(), "{states} states");
    }
}
