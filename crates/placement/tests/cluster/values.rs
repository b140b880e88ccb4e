use placement::{
    Candidate, Error, ErrorKind, GroupPlan, Seen, SeenOutcome, Slot, SlotMap, ValueError, place,
};
use replica::GroupId;
use replica::{Configuration, Index, ReplicaId, Role, Term};

use crate::server::Server;
use crate::{id, meta, node};

fn plan() -> GroupPlan {
    let nodes: Vec<Candidate> =
        (1..=3).map(|number| Candidate::new(id(number.into()), &node(number, 1))).collect();
    place(&nodes, 1, 1).unwrap().remove(0)
}

fn seen(index: u64, term: u64) -> Seen {
    let configuration = Configuration::new([
        (ReplicaId(1), Role::Witness),
        (ReplicaId(2), Role::Backup),
        (ReplicaId(3), Role::Witness),
    ]);
    Seen {
        configuration,
        index: Index(index),
        term: Term(term),
        leader: Some(ReplicaId(1)),
        version: replica::Version(1),
        last_replica: ReplicaId(9),
        nodes: std::collections::BTreeMap::new(),
        epoch: placement::Epoch(1),
    }
}

#[tokio::test]
async fn a_cluster_is_created_once_and_loaded() {
    let server = Server::start().await;
    let etcd = server.client("barn").await;
    assert!(matches!(etcd.load().await, Err(Error::NoCluster(_))));
    etcd.create_cluster(&meta(1)).await.unwrap();
    etcd.create_cluster(&meta(1)).await.unwrap();
    let second = etcd.create_cluster(&meta(2)).await.unwrap_err();
    assert!(matches!(second, Error::ClusterExists(_)), "{second}");
    server.client("barn-2").await.create_cluster(&meta(2)).await.unwrap();
    let view = etcd.load().await.unwrap();
    assert_eq!((view.meta, &view.slots), (meta(1), &SlotMap::even(4)));
    assert_eq!(view.slots.group(Slot::new(12_182).unwrap()), GroupId(2));
    assert!(view.nodes.is_empty() && view.want.is_empty() && view.seen.is_empty() && view.placer.is_none());
}

#[tokio::test]
async fn a_plan_takes_the_place_only_of_the_one_that_was_read() {
    let server = Server::start().await;
    let etcd = server.client("barn").await;
    let group = GroupId(3);
    let no_cluster = etcd.write_want(group, &plan(), None).await.unwrap_err();
    assert!(matches!(no_cluster, Error::NoCluster(_)), "{no_cluster}");
    etcd.create_cluster(&meta(1)).await.unwrap();
    for number in 1..=3_u16 {
        etcd.join(id(number.into()), &node(number, 1), std::time::Duration::from_secs(60), None)
            .await
            .unwrap();
    }
    let first = etcd.write_want(group, &plan(), None).await.unwrap();
    assert_eq!(etcd.write_want(group, &plan(), None).await.unwrap(), first, "a repeated request");
    assert_eq!(etcd.load().await.unwrap().want[&group].changed, first);
    let other = GroupPlan::new(plan().members().to_vec(), ReplicaId(2), ReplicaId(8));
    let other =
        other.or_else(|_| GroupPlan::new(plan().members().to_vec(), ReplicaId(1), ReplicaId(8))).unwrap();
    let late = etcd.write_want(group, &other, None).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Conflict, "{late}");
    let second = etcd.write_want(group, &other, Some(first)).await.unwrap();
    let late = etcd.write_want(group, &plan(), Some(first)).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Conflict, "{late}");
    let want = etcd.load().await.unwrap().want.remove(&group).unwrap();
    assert_eq!((want.plan, want.changed), (other, second));
}

#[tokio::test]
async fn what_a_group_s_log_says_never_goes_back() {
    let server = Server::start().await;
    let etcd = server.client("barn").await;
    etcd.create_cluster(&meta(1)).await.unwrap();
    let group = GroupId(0);
    assert_eq!(etcd.write_seen(group, &seen(5, 2)).await.unwrap(), SeenOutcome::Written);
    assert_eq!(etcd.write_seen(group, &seen(4, 9)).await.unwrap(), SeenOutcome::Newer(seen(5, 2)));
    assert_eq!(etcd.write_seen(group, &seen(5, 1)).await.unwrap(), SeenOutcome::Newer(seen(5, 2)));
    assert_eq!(etcd.write_seen(group, &seen(5, 3)).await.unwrap(), SeenOutcome::Written);
    // Six writers at once: the latest value stays, whoever comes last.
    let writers = (0..6_u64).map(|writer| {
        let etcd = etcd.clone();
        tokio::spawn(async move {
            for step in 0..10 {
                let value = seen(10 + step * 6 + (writer * 5 + step) % 6, writer);
                while let Err(error) = etcd.write_seen(group, &value).await {
                    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
                }
                let held = etcd.load().await.unwrap().seen.remove(&group).unwrap();
                assert!(held.may_replace(&value), "{held:?} came after {value:?}");
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    let highest = (0..6).map(|writer| 10 + 9 * 6 + (writer * 5 + 9) % 6).max().unwrap();
    assert_eq!(etcd.load().await.unwrap().seen[&group].index, Index(highest));
}

#[tokio::test]
async fn a_wrong_value_is_an_error_that_names_the_key() {
    let server = Server::start().await;
    let etcd = server.client("barn").await;
    etcd.create_cluster(&meta(1)).await.unwrap();
    let mut raw = server.raw().await;
    for (key, value) in [
        ("meta", r#"{"format":2}"#),
        ("slots", r#"{"ranges":[{"first":0,"last":16382,"group":0}]}"#),
        ("groups/0/want", "\u{1b}[31m"),
        ("groups/0/seen", r#"{"index":1}"#),
        ("groups/4/seen", std::str::from_utf8(&seen(1, 1).encode()).unwrap()),
        ("nodes/00000000-0000-0000-0000-000000000001", r#"{"offers":["arbiter"]}"#),
        ("alive/00000000-0000-0000-0000-000000000001", r#"{"starts":1}"#),
        ("placer", "nobody"),
        ("other", ""),
    ] {
        let path = format!("/furrow/barn/{key}");
        let before =
            raw.get(path.as_str(), None).await.unwrap().kvs().first().map(|found| found.value().to_vec());
        raw.put(path.as_str(), value, None).await.unwrap();
        match etcd.load().await {
            Err(error @ Error::Value { .. }) => {
                assert!(error.to_string().starts_with(&format!("etcd's key {path}: ")), "{error}");
                assert_eq!(error.kind(), ErrorKind::Corrupt);
            }
            other => panic!("{key}: {other:?}"),
        }
        match before {
            Some(before) => drop(raw.put(path, before, None).await.unwrap()),
            None => drop(raw.delete(path, None).await.unwrap()),
        }
    }
    raw.put("/furrow/barn/groups/1/seen", "{}", None).await.unwrap();
    let error = etcd.write_seen(GroupId(1), &seen(9, 9)).await.unwrap_err();
    assert!(matches!(error, Error::Value { error: ValueError::Json(_), .. }), "{error}");
}
