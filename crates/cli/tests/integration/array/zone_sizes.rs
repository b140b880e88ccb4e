//! Arrays whose zones are smaller or larger than a physical zone of each drive (`--zone-size`).

use std::process::Output;

use serde_json::Value;

use super::{ArrayDirectory, Server, refused};
use crate::common::{done, json, run, stdout_of};

/// Creates an array of these drives, with the arguments `more` of the command.
fn create(drives: &[String], more: &[&str]) -> Output {
    let args = ["array", "create"].into_iter().chain(drives.iter().map(String::as_str));
    run(None, &args.chain(more.iter().copied()).collect::<Vec<_>>())
}

#[test]
fn zones_of_half_the_drives_size_are_written_reset_and_reclaimed() {
    let barn = ArrayDirectory::new();
    let drives: Vec<String> = (0..4)
        .map(|n| format!("{}?zones=43&zone-size=1MiB&max-active=9&max-open=9", barn.drive(n)))
        .collect();
    let create = |more: &[&str]| create(&drives, more);
    refused(&create(&["--placement", "fixed", "--zone-size", "1/2"]), 2, &["need stored maps"]);
    refused(&create(&["--zone-size", "1/17"]), 2, &["so that 1 to 16 fit"]);
    refused(&create(&["--zone-size", "1MiB"]), 1, &["the nearest size is", "1/3"]);
    let narrow = ["--width", "3"];
    for size in ["1/2", "1MiB"] {
        let spares = [&narrow[..], &["--spares", "1", "--zone-size", size]].concat();
        refused(&create(&spares), 2, &["lost parts are not restored there"]);
    }
    done(&create(&[&narrow[..], &["--zone-size", "1/2"]].concat()));
    let view = json(&done(&run(Some(&barn.array(0..4)), &["array", "status", "--json"])));
    assert_eq!(
        (&view["zones"], &view["width"]),
        (&Value::from(2 * (40 - 7) * 4 / 3), &Value::from(3)),
        "{view}"
    );
    assert_eq!(view["space"]["reserve_zones"], Value::from(7), "{view}");
    done(&create(&["--zone-size", "1/2", "--force"]));
    let array = barn.array(0..4);
    let view = json(&done(&run(Some(&array), &["array", "status", "--json"])));
    // Five active zones beside three metadata zones and one for parts that move; as many zones in reserve, and two.
    assert_eq!(
        (&view["zones"], &view["zone_shares"]),
        (&Value::from(2 * (40 - 7)), &Value::from(2)),
        "{view}"
    );
    let space = &view["space"];
    assert_eq!((&space["live"], &space["empty_zones"]), (&Value::from(0), &Value::from(40)), "{view}");
    assert_eq!(space["reserve_zones"], Value::from(7), "{view}");
    done(&run(Some(&array), &["fs", "mkfs"]));
    std::fs::write(barn.path("source"), ArrayDirectory::content()).expect("a file");
    for file in 0..6 {
        done(&run(Some(&array), &["fs", "cp", &barn.text("source"), &format!("fs:/{file}")]));
    }
    for file in [0, 2, 4] {
        done(&run(Some(&array), &["fs", "rm", &format!("fs:/{file}")]));
    }
    let shown = stdout_of(&run(Some(&array), &["array", "status"]));
    assert!(shown.contains("live,") && shown.contains("in reserve"), "{shown}");
    done(&run(Some(&array), &["array", "reclaim", "--empty", "8"]));
    let server = Server::start(&array, &[]);
    done(&server.array(&["reclaim"]));
    assert!(server.page("/metrics").contains("furrow_array_reclaimed_zones"));
    drop(server);
    for file in [1, 3, 5] {
        done(&run(Some(&array), &["fs", "cp", &format!("fs:/{file}"), &barn.text("back")]));
        assert_eq!(std::fs::read(barn.path("back")).expect("a file"), ArrayDirectory::content());
        std::fs::remove_file(barn.path("back")).expect("removed");
    }
    // Where each part has a physical zone for itself there is nothing to reclaim.
    let other = ArrayDirectory::new();
    other.create(&[]);
    refused(
        &run(Some(&other.array(0..4)), &["array", "reclaim"]),
        2,
        &["no logical zones of the array share"],
    );
}

#[test]
fn zones_of_several_zones_of_each_drive_hold_files_when_a_drive_is_gone() {
    let barn = ArrayDirectory::new();
    let drives: Vec<String> = (0..4)
        .map(|n| format!("{}?zones=64&zone-size=1MiB&max-active=28&max-open=28", barn.drive(n)))
        .collect();
    let create = |more: &[&str]| create(&drives, &[&["--stripe-unit", "4KiB"], more].concat());
    refused(&create(&["--interleave"]), 2, &["say how many (--zone-size M)"]);
    refused(&create(&["--zone-size", "65"]), 2, &["there may be 1 to 64"]);
    refused(&create(&["--zone-size", "2", "--atomic-writes"]), 2, &["cannot be atomic"]);
    refused(&create(&["--zone-size", "30", "--interleave"]), 2, &["the array can have 24 open"]);
    refused(
        &create(&["--zone-size", "8MiB"]),
        1,
        &["the nearest size is 9437184 bytes", "3 zones of each drive"],
    );
    done(&create(&["--zone-size", "12MiB", "--interleave"]));
    let array = barn.array(0..4);
    let view = json(&done(&run(Some(&array), &["array", "status", "--json"])));
    let shown = ["zones", "zone_sections", "interleaved", "zone_shares"].map(|name| view[name].clone());
    assert_eq!(serde_json::json!(shown), serde_json::json!([15, 4, true, 1]), "{view}");
    let words = stdout_of(&run(Some(&array), &["array", "status"]));
    assert!(words.contains("4 zones of each drive, stripe by stripe"), "{words}");
    done(&run(Some(&array), &["fs", "mkfs"]));
    std::fs::write(barn.path("source"), ArrayDirectory::content()).expect("a file");
    for file in 0..4 {
        done(&run(Some(&array), &["fs", "cp", &barn.text("source"), &format!("fs:/{file}")]));
    }
    for array in [&array, &barn.array(1..4)] {
        for file in 0..4 {
            done(&run(Some(array), &["fs", "cp", &format!("fs:/{file}"), &barn.text("back")]));
            assert_eq!(std::fs::read(barn.path("back")).expect("a file"), ArrayDirectory::content());
            std::fs::remove_file(barn.path("back")).expect("removed");
        }
    }
}
