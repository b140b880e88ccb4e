use super::*;

fn barn() -> ClusterName {
    ClusterName::parse("barn").unwrap()
}

/// The keys and values of a cluster of three nodes and one group. `#N` is short for a node's UUID.
fn cluster() -> Vec<(String, String)> {
    let node = |n: u32| {
        (
            format!("nodes/#{n}"),
            format!(
                r#"{{"peer":"10.0.0.{n}:7000","client":"10.0.0.{n}:6379","offers":["primary","backup"],"rack":"r{n}","starts":1,"speaks":1}}"#
            ),
        )
    };
    let mut pairs = vec![
        ("meta".to_owned(), r##"{"format":1,"cluster":"#9","epoch":1,"copies":1,"groups":1,"version":1}"##.to_owned()),
        ("slots".to_owned(), r#"{"ranges":[{"first":0,"last":16383,"group":0}]}"#.to_owned()),
        ("groups/0/want".to_owned(), r##"{"last_replica":3,"preferred":1,"members":[{"replica":1,"node":"#1","role":"witness"},{"replica":2,"node":"#2","role":"backup"},{"replica":3,"node":"#3","role":"witness"}],"leaving":[]}"##.to_owned()),
        ("groups/0/seen".to_owned(), r#"{"index":1,"term":1,"leader":1,"version":1,"last_replica":3,"epoch":1,"voters":[{"replica":1,"role":"witness","node":null},{"replica":2,"role":"backup","node":null},{"replica":3,"role":"witness","node":null}],"outgoing":[],"learners":[]}"#.to_owned()),
        ("draining/#3".to_owned(), r#"{"is_last":true}"#.to_owned()),
        ("placer".to_owned(), "#2".to_owned()),
        ("alive/#1".to_owned(), r#"{"starts":1}"#.to_owned()),
        ("alive/#2".to_owned(), r#"{"starts":1}"#.to_owned()),
    ];
    pairs.extend([node(1), node(2), node(3)]);
    pairs
}

fn decode(pairs: &[(String, String)]) -> Result<Option<ClusterView>, KeyError> {
    let full = |text: &str| text.replace('#', "00000000-0000-4000-8000-00000000000");
    let pairs: Vec<(String, String)> =
        pairs.iter().map(|(key, value)| (format!("/furrow/barn/{}", full(key)), full(value))).collect();
    let raw = pairs.iter().enumerate().map(|(at, (key, value))| RawValue {
        key: key.as_bytes(),
        value: value.as_bytes(),
        changed: Revision(at as i64 + 1),
    });
    ClusterView::decode(&barn(), Revision(40), raw)
}

/// The cluster with `from` replaced by `to` in the value of one key.
fn altered(key: &str, from: &str, to: &str) -> Vec<(String, String)> {
    let mut pairs = cluster();
    let (_, value) = pairs.iter_mut().find(|(name, _)| name == key).unwrap();
    assert!(value.contains(from), "{value} has no {from}");
    *value = value.replacen(from, to, 1);
    pairs
}

#[test]
fn a_cluster_is_decoded_with_all_its_parts() {
    let view = decode(&cluster()).unwrap().unwrap();
    assert_eq!((view.nodes.len(), view.alive.len(), view.live_nodes().count()), (3, 2, 2));
    let want = view.want.get(&GroupId(0)).unwrap();
    assert_eq!(want.changed, Revision(3));
    assert_eq!(view.placer, want.plan.members().get(1).map(|member| member.node));
    assert_eq!(view.draining.into_values().collect::<Vec<_>>(), [Drain { is_last: true }]);
    assert_eq!(view.revision, Revision(40));
    assert_eq!(decode(&[]).unwrap(), None);
}

#[test]
fn values_that_contradict_each_other_are_refused_with_the_key() {
    for (key, from, to, named, why) in [
        ("nodes/#2", "10.0.0.2:7000", "10.0.0.1:6379", "nodes/", "are alive with one address, 10.0.0.1:6379"),
        ("slots", "\"group\":0", "\"group\":1", "slots", "the cluster has 1 groups, no group 1"),
        (
            "meta",
            "\"copies\":1",
            "\"copies\":2",
            "groups/0/want",
            "a plan for K = 1, where the cluster has K = 2",
        ),
        ("groups/0/want", "#3", "#4", "groups/0/want", "which is not in the cluster"),
        ("placer", "#2", "two", "placer", "is no UUID"),
        ("slots", "16383", "16382", "slots", "slot 16383 belongs to no group"),
    ] {
        let error = decode(&altered(key, from, to)).unwrap_err();
        assert!(error.key.starts_with(&format!("/furrow/barn/{named}")), "{to}: {error}");
        assert!(error.to_string().contains(why), "{to}: {error}");
    }
}

#[test]
fn a_missing_an_unknown_and_a_foreign_key_are_refused() {
    for key in ["meta", "slots", "nodes/#1"] {
        let pairs: Vec<_> = cluster().into_iter().filter(|(name, _)| name != key).collect();
        assert!(decode(&pairs).is_err(), "{key}");
    }
    for key in ["groups/0/wants", "groups/1/want", "groups/1/seen", "nodes/barn", "extra"] {
        let mut pairs = cluster();
        let value = pairs.iter().find(|(name, _)| name == &key.replace('1', "0")).map(|pair| pair.1.clone());
        pairs.push((key.to_owned(), value.unwrap_or_default()));
        let error = decode(&pairs).unwrap_err();
        assert!(error.key.ends_with(key), "{key}: {error}");
    }
}

#[test]
fn a_dead_node_may_have_the_address_of_a_live_one() {
    let view = decode(&altered("nodes/#3", "10.0.0.3:7000", "10.0.0.1:7000")).unwrap().unwrap();
    assert_eq!(view.nodes.len(), 3);
}

#[test]
fn a_meta_of_a_newer_version_is_named_before_what_that_version_adds() {
    let newer = replica::Version(replica::Version::NEWEST.0 + 1);
    let mut pairs: Vec<(String, String)> = altered("groups/0/seen", "\"index\":1", "\"added\":7,\"index\":1");
    for (key, value) in &mut pairs {
        if key == "meta" {
            *value = value.replace("\"version\":1", &format!("\"version\":{}", newer.0));
        }
    }
    let error = decode(&pairs).unwrap_err();
    assert!(matches!(error.error, ValueError::TooOld(_)), "{error}");
}
