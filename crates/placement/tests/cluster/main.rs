//! The client against a real etcd.

#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "tests")]

mod election;
mod faults;
mod membership;
mod server;
mod values;

use placement::{Address, ClusterId, ClusterView, Meta, Node, NodeId, Offers, Rack, ViewWatch};
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
    }
}

/// Waits until a view is as wanted. Errors are waited out.
async fn until(watch: &mut ViewWatch, wanted: impl Fn(&ClusterView) -> bool) -> ClusterView {
    loop {
        match watch.next().await {
            Ok(view) if wanted(&view) => return view,
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), placement::ErrorKind::Retry, "{error}"),
        }
    }
}
