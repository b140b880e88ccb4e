use std::path::Path;
use std::time::Duration;

use placement::{Epoch, ErrorKind, JoinedState, Remembered, StaleError, accepts};
use replica::GroupId;
use replica::{Configuration, Index, ReplicaId, Role, Term};

use crate::server::Server;
use crate::{id, meta, node, soon, until, until_state};

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_watch_sees_changes_also_after_etcd_was_killed_and_its_history_compacted() {
    let mut server = Server::start().await;
    let etcd = server.client("barn").await;
    etcd.create_cluster(&meta(1)).await.unwrap();
    let mut watch = etcd.watch();
    assert!(watch.next().await.unwrap().nodes.is_empty());
    let first = etcd.join(id(1), &node(1, 1), LONG, None).await.unwrap();
    until(&mut watch, |view| view.nodes.len() == 1).await;
    server.kill();
    let error = server.client_with("barn", Duration::from_secs(2)).await.load().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
    server.start_again().await;
    let second = etcd.join(id(2), &node(2, 1), LONG, None).await.unwrap();
    until(&mut watch, |view| view.live_nodes().count() == 2).await;
    // A watch that begins behind changes that are compacted by then.
    server.kill();
    server.start_again().await;
    let third = etcd.join(id(3), &node(3, 1), LONG, None).await.unwrap();
    let revision = etcd.load().await.unwrap().revision;
    server.raw().await.compact(revision.0, None).await.unwrap();
    until(&mut watch, |view| view.live_nodes().count() == 3).await;
    third.leave().await.unwrap();
    until(&mut watch, |view| view.live_nodes().count() == 2).await;
    drop((first, second));
}

#[tokio::test]
async fn an_etcd_that_does_not_answer_is_an_error_to_wait_out() {
    let server = Server::start().await;
    let patient = server.client("barn").await;
    patient.create_cluster(&meta(1)).await.unwrap();
    let joined = patient.join(id(1), &node(1, 1), LONG, None).await.unwrap();
    let etcd = server.client_with("barn", Duration::from_millis(300)).await;
    while etcd.load().await.is_err() {}
    let mut watch = etcd.watch();
    until(&mut watch, |view| view.nodes.len() == 1).await;
    server.signal("STOP");
    let configuration = Configuration::new([(ReplicaId(1), Role::Witness)]);
    let seen = placement::Seen {
        configuration,
        index: Index(1),
        term: Term(1),
        leader: None,
        version: replica::Version(1),
        last_replica: ReplicaId(9),
        nodes: std::collections::BTreeMap::new(),
        epoch: placement::Epoch(1),
    };
    let errors = async {
        [
            etcd.load().await.map(drop).unwrap_err(),
            etcd.write_seen(GroupId(0), &seen).await.map(drop).unwrap_err(),
            etcd.elect(id(1), LONG).await.map(drop).unwrap_err(),
            etcd.join(id(2), &node(2, 1), LONG, None).await.map(drop).unwrap_err(),
            etcd.create_cluster(&meta(2)).await.unwrap_err(),
            etcd.raise_epoch(Epoch(2)).await.map(drop).unwrap_err(),
        ]
    };
    for error in soon(errors).await {
        assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
    }
    server.signal("CONT");
    let other = patient.join(id(3), &node(3, 1), LONG, None).await.unwrap();
    until(&mut watch, |view| view.alive.contains_key(&id(3))).await;
    assert_eq!((joined.state(), other.state()), (JoinedState::Alive, JoinedState::Alive));
}

#[tokio::test]
async fn a_node_whose_etcd_is_gone_says_so_and_is_alive_again_when_etcd_is_back() {
    let mut server = Server::start().await;
    let etcd = server.client("barn").await;
    etcd.create_cluster(&meta(1)).await.unwrap();
    let brief = server.client_with("barn", Duration::from_secs(2)).await;
    let mut joined = loop {
        match brief.join(id(1), &node(1, 1), Duration::from_secs(3), None).await {
            Ok(joined) => break joined,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Retry, "{error}"),
        }
    };
    server.kill();
    until_state(&mut joined, |state| matches!(state, JoinedState::Unknown(_))).await;
    server.start_again().await;
    until_state(&mut joined, |state| *state == JoinedState::Alive).await;
}

#[tokio::test]
async fn an_etcd_restored_from_an_old_backup_is_refused_until_the_epoch_is_raised() {
    let mut server = Server::start().await;
    let etcd = server.client("barn").await;
    etcd.create_cluster(&meta(1)).await.unwrap();
    server.kill();
    let backup = tempfile::tempdir().unwrap();
    copy(&server.data(), backup.path());
    server.start_again().await;
    etcd.join(id(1), &node(1, 1), LONG, None).await.unwrap();
    let view = etcd.load().await.unwrap();
    let first =
        Remembered { cluster: view.meta.cluster(), epoch: Epoch(1), revision: placement::Revision(0) };
    let remembered = accepts(&first, &view.meta, view.revision).unwrap();
    server.kill();
    std::fs::remove_dir_all(server.data()).unwrap();
    copy(backup.path(), &server.data());
    server.start_again().await;
    let view = etcd.load().await.unwrap();
    assert!(view.nodes.is_empty());
    let refused = accepts(&remembered, &view.meta, view.revision).unwrap_err();
    assert!(matches!(refused, StaleError::OldRevision { .. }), "{refused}");
    let error = etcd.join(id(1), &node(1, 2), LONG, Some(&remembered)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert_eq!(etcd.raise_epoch(Epoch(1)).await.unwrap_err().kind(), ErrorKind::Conflict);
    etcd.raise_epoch(Epoch(2)).await.unwrap();
    etcd.join(id(1), &node(1, 2), LONG, Some(&remembered)).await.unwrap();
}

/// Copies a folder with all that is in it.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}
