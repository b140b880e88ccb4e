//! The rule that `reopened_zones` rests on, broken. Arrays whose zones share physical ones are not here: 400 cuts of this workload reopen too
//! few of those.

use crate::reopened_zones::refused_mounts;
use array::BrokenRule;

/// Zones are written whole here. A finish flushes all drives first, so that a cut reopens one finished zone at most, and an array whose log
/// lies in one metadata zone has room for that.
#[test]
fn zones_that_a_power_cut_reopens_would_take_the_place_of_the_checkpoint() {
    let refused = refused_mounts(400, false, Some(BrokenRule::FullZones));
    assert!(refused.iter().any(|why| why.contains("active")), "{refused:?}");
}
