//! The client against a real etcd.

#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "tests")]

mod election;
mod faults;
mod membership;
mod secured;
mod server;
mod values;

use std::time::Duration;

use placement::{Address, ClusterView, Joined, JoinedState, Meta, Node, Offers, Rack, ViewWatch};
use replica::{ClusterId, NodeId, Version};
use uuid::Uuid;

/// The UUID of the node with this number.
fn id(number: u128) -> NodeId {
    NodeId(Uuid::from_u128(number))
}

/// A cluster of K = 1 and four groups.
fn meta(cluster: u128) -> Meta {
    Meta::new(ClusterId(Uuid::from_u128(cluster)), 1, 4).unwrap()
}

/// A node at ports of its own.
fn node(number: u16, starts: u64) -> Node {
    let address = |port: u16| Address::parse(&format!("10.0.0.1:{port}")).unwrap();
    Node {
        peer: address(7000 + number),
        client: address(6000 + number),
        offers: Offers::ALL,
        rack: Rack::parse("r1").unwrap(),
        starts,
        speaks: Version::NEWEST,
    }
}

/// Waits for what happens soon on any machine; a test in which it never happens fails.
async fn soon<T>(happens: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(120), happens).await.expect("this happens")
}

/// Waits until a view is as wanted. Errors are waited out.
async fn until(watch: &mut ViewWatch, wanted: impl Fn(&ClusterView) -> bool) -> ClusterView {
    let view = async {
        loop {
            match watch.next().await {
                Ok(view) if wanted(&view) => return view,
                Ok(_) => {}
                Err(error) => assert_eq!(error.kind(), placement::ErrorKind::Retry, "{error}"),
            }
        }
    };
    soon(view).await
}

/// Waits until a node's state is as wanted.
async fn until_state(joined: &mut Joined, wanted: impl Fn(&JoinedState) -> bool) {
    let state = async {
        while !wanted(&joined.state()) {
            joined.changed().await;
        }
    };
    soon(state).await;
}
