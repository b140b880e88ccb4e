use std::time::Duration;

use placement::{Drain, Error, JoinedState, Node};
use replica::Version;

use crate::server::Server;
use crate::{id, meta, node, soon, until, until_state};

/// Far longer than a slow machine needs between two signs of life.
const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_node_is_alive_while_its_process_keeps_its_lease() {
    let server = Server::start().await;
    let etcd = server.client("barn").await;
    etcd.create_cluster(&meta(1)).await.unwrap();
    let _stays = etcd.join(id(1), &node(1, 1), LONG, None).await.unwrap();
    let dies = etcd.join(id(2), &node(2, 7), Duration::from_secs(4), None).await.unwrap();
    let leaves = etcd.join(id(3), &node(3, 1), LONG, None).await.unwrap();
    let mut watch = etcd.watch();
    let view = until(&mut watch, |view| view.alive.len() == 3).await;
    assert_eq!((view.nodes[&id(2)].clone(), view.alive[&id(2)].starts), (node(2, 7), 7));
    // The lease is granted for 4 s: it is kept alive for longer than that.
    tokio::time::sleep(Duration::from_secs(7)).await;
    let both =
        async { while etcd.load().await.unwrap().alive.len() < 3 || dies.state() != JoinedState::Alive {} };
    soon(both).await;
    drop(dies);
    let view = until(&mut watch, |view| !view.alive.contains_key(&id(2))).await;
    assert!(view.nodes.contains_key(&id(2)) && view.live_nodes().count() == 2);
    leaves.leave().await.unwrap();
    assert_eq!(etcd.load().await.unwrap().alive.keys().collect::<Vec<_>>(), [&id(1)]);
}

#[tokio::test]
async fn a_counter_that_is_not_above_the_last_and_an_address_of_a_live_node_are_refused() {
    let server = Server::start().await;
    let etcd = server.client("barn").await;
    assert!(matches!(etcd.join(id(1), &node(1, 1), LONG, None).await, Err(Error::NoCluster(_))));
    etcd.create_cluster(&meta(1)).await.unwrap();
    let first = etcd.join(id(1), &node(1, 4), LONG, None).await.unwrap();
    for starts in [3, 4] {
        let error = etcd.join(id(1), &node(1, starts), LONG, None).await.unwrap_err();
        assert!(matches!(error, Error::StartsNotAbove { recorded: 4, .. }), "{error}");
    }
    let mut same = node(2, 1);
    same.client = node(1, 1).peer;
    let error = etcd.join(id(2), &same, LONG, None).await.unwrap_err();
    assert!(matches!(error, Error::AddressTaken { other, .. } if other == id(1)), "{error}");
    first.leave().await.unwrap();
    let _joined = etcd.join(id(2), &same, LONG, None).await.unwrap();
}

#[tokio::test]
async fn a_process_learns_that_another_one_took_its_node_s_place() {
    let server = Server::start().await;
    let etcd = server.client("barn").await;
    etcd.create_cluster(&meta(1)).await.unwrap();
    let mut first = etcd.join(id(1), &node(1, 1), Duration::from_secs(2), None).await.unwrap();
    let second = etcd.join(id(1), &node(1, 2), LONG, None).await.unwrap();
    until_state(&mut first, |state| *state == JoinedState::Superseded { starts: 2 }).await;
    assert_eq!((second.state(), etcd.load().await.unwrap().alive[&id(1)].starts), (JoinedState::Alive, 2));
}

#[tokio::test]
async fn a_node_whose_lease_ended_against_its_will_is_registered_again() {
    let server = Server::start().await;
    let etcd = server.client("barn").await;
    etcd.create_cluster(&meta(1)).await.unwrap();
    let _joined = etcd.join(id(1), &node(1, 1), Duration::from_secs(2), None).await.unwrap();
    let mut raw = server.raw().await;
    let sign = format!("/furrow/barn/alive/{}", id(1));
    let lease = raw.get(sign.as_str(), None).await.unwrap().kvs()[0].lease();
    let mut watch = etcd.watch();
    let before = until(&mut watch, |view| view.alive.len() == 1).await;
    raw.lease_revoke(lease).await.unwrap();
    until(&mut watch, |view| view.alive.len() == 1 && view.revision > before.revision).await;
}

#[tokio::test]
async fn a_node_that_is_not_alive_is_removed_and_its_process_learns_so() {
    let server = Server::start().await;
    let etcd = server.client("barn").await;
    etcd.create_cluster(&meta(1)).await.unwrap();
    let mut joined = etcd.join(id(1), &node(1, 1), Duration::from_secs(2), None).await.unwrap();
    assert!(matches!(etcd.set_drain(id(2), Some(Drain { is_last: true })).await, Err(Error::NoNode { .. })));
    etcd.set_drain(id(1), Some(Drain { is_last: true })).await.unwrap();
    assert!(!etcd.remove_node(id(1)).await.unwrap(), "the node is alive");
    assert!(etcd.load().await.unwrap().draining[&id(1)].is_last);
    let mut raw = server.raw().await;
    let sign = format!("/furrow/barn/alive/{}", id(1));
    // The process registers again between a lease's end and a removal, now and then.
    soon(async {
        while !etcd.remove_node(id(1)).await.unwrap() {
            if let Some(pair) = raw.get(sign.as_str(), None).await.unwrap().kvs().first() {
                let _ended = raw.lease_revoke(pair.lease()).await;
            }
        }
    })
    .await;
    until_state(&mut joined, |state| *state == JoinedState::Removed).await;
    let view = etcd.load().await.unwrap();
    assert!(view.nodes.is_empty() && view.draining.is_empty());
}

#[tokio::test]
async fn many_nodes_join_at_once() {
    let server = Server::start().await;
    let etcd = server.client("barn").await;
    etcd.create_cluster(&meta(1)).await.unwrap();
    let join = |number: u16| {
        let etcd = etcd.clone();
        tokio::spawn(async move {
            let (id, mut starts) = (id(number.into()), 1);
            loop {
                match etcd.join(id, &node(number, starts), LONG, None).await {
                    Ok(joined) => return joined,
                    Err(error) => assert!(matches!(error, Error::Conflict(_)), "{error}"),
                }
                starts += 1;
            }
        })
    };
    let mut joined = Vec::new();
    for task in (1..=12).map(join).collect::<Vec<_>>() {
        joined.push(task.await.unwrap());
    }
    assert_eq!(etcd.load().await.unwrap().live_nodes().count(), joined.len());
}

#[tokio::test]
async fn of_nodes_that_join_at_once_with_one_address_one_is_in_the_cluster() {
    let server = Server::start().await;
    let etcd = server.client("barn").await;
    etcd.create_cluster(&meta(1)).await.unwrap();
    let join = |number: u128| {
        let etcd = etcd.clone();
        tokio::spawn(async move { etcd.join(id(number), &node(1, 1), LONG, None).await })
    };
    let mut joined = Vec::new();
    for task in (1..=6).map(join).collect::<Vec<_>>() {
        match task.await.unwrap() {
            Ok(one) => joined.push(one),
            Err(error) => assert!(matches!(error, Error::AddressTaken { .. }), "{error}"),
        }
    }
    assert_eq!((joined.len(), etcd.load().await.unwrap().nodes.len()), (1, 1));
}

#[tokio::test]
async fn a_cluster_is_raised_once_every_node_s_program_speaks_the_version() {
    let server = Server::start().await;
    let etcd = server.client("barn").await;
    let first = meta(1).with_version(Version(1));
    etcd.create_cluster(&first).await.unwrap();
    let older = Node { speaks: Version(1), ..node(1, 1) };
    let joined = etcd.join(id(1), &older, LONG, None).await.unwrap();
    let _newer = etcd.join(id(2), &node(2, 1), LONG, None).await.unwrap();
    // A node that is not alive may come back with its older program.
    joined.leave().await.unwrap();
    let refused = etcd.raise_version(Version(2)).await.unwrap_err();
    assert!(
        matches!(&refused, Error::OlderNodes { nodes, .. } if *nodes == [(id(1), Version(1))]),
        "{refused}"
    );
    assert_eq!(etcd.load().await.unwrap().meta, first);
    // A group has the version already, and etcd was restored.
    assert_eq!(etcd.restore_version(Version(2)).await.unwrap(), meta(1).with_version(Version(2)));
    assert_eq!(etcd.restore_version(Version(1)).await.unwrap(), meta(1).with_version(Version(2)));
}

#[tokio::test]
async fn a_cluster_of_newer_programs_is_raised_once() {
    let server = Server::start().await;
    let etcd = server.client("barn").await;
    etcd.create_cluster(&meta(1).with_version(Version(1))).await.unwrap();
    let _joined = etcd.join(id(1), &node(1, 2), LONG, None).await.unwrap();
    assert_eq!(etcd.raise_version(Version(2)).await.unwrap(), meta(1).with_version(Version(2)));
    assert_eq!(etcd.raise_version(Version(1)).await.unwrap().version(), Version(2), "versions never go back");
}
