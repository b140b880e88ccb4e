use std::time::Duration;

use placement::Error;

use crate::server::Server;
use crate::{id, meta, soon, until};

#[tokio::test]
async fn of_two_candidates_one_is_elected_and_the_other_one_when_the_first_resigns_or_dies() {
    let server = Server::start().await;
    let etcd = server.client("barn").await;
    let long = Duration::from_secs(60);
    assert!(matches!(etcd.elect(id(1), long).await, Err(Error::NoCluster(_))));
    etcd.create_cluster(&meta(1)).await.unwrap();
    let first = etcd.elect(id(1), long).await.unwrap().unwrap();
    assert!(first.is_held());
    assert!(etcd.elect(id(2), long).await.unwrap().is_none());
    let mut watch = etcd.watch();
    until(&mut watch, |view| view.placer == Some(id(1))).await;
    first.resign().await.unwrap();
    until(&mut watch, |view| view.placer.is_none()).await;

    let second = etcd.elect(id(2), Duration::from_secs(6)).await.unwrap().unwrap();
    // The lease is granted for 6 s: it is kept alive for longer than that.
    tokio::time::sleep(Duration::from_secs(9)).await;
    assert!(etcd.elect(id(1), long).await.unwrap().is_none());
    drop(second);
    until(&mut watch, |view| view.placer == Some(id(2))).await;
    until(&mut watch, |view| view.placer.is_none()).await;
    assert!(etcd.elect(id(1), long).await.unwrap().is_some());
}

#[tokio::test]
async fn of_candidates_at_once_one_is_elected() {
    let server = Server::start().await;
    let etcd = server.client("barn").await;
    etcd.create_cluster(&meta(1)).await.unwrap();
    let stand = |number: u128| {
        let etcd = etcd.clone();
        tokio::spawn(async move { etcd.elect(id(number), Duration::from_secs(60)).await.unwrap() })
    };
    let mut elected = Vec::new();
    for task in (1..=8).map(stand).collect::<Vec<_>>() {
        elected.extend(task.await.unwrap());
    }
    assert_eq!(elected.len(), 1);
}

#[tokio::test]
async fn an_office_is_not_held_once_its_lease_was_not_kept_alive_in_time() {
    let mut server = Server::start().await;
    let etcd = server.client_with("barn", Duration::from_secs(1)).await;
    while etcd.create_cluster(&meta(1)).await.is_err() {}
    let elected = loop {
        if let Ok(Some(elected)) = etcd.elect(id(1), Duration::from_secs(3)).await {
            break elected;
        }
    };
    server.kill();
    let over = async {
        while elected.is_held() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    soon(over).await;
}
