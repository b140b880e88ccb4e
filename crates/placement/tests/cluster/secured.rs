use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use etcd_client::Client;
use placement::{ClusterName, Error, ErrorKind, Etcd, EtcdSettings};

use crate::meta;
use crate::server::Server;

#[tokio::test]
async fn an_encrypted_etcd_is_reached_with_certificates_of_its_authority_only() {
    let server = Server::start_encrypted().await;
    let etcd = server.client("barn").await;
    etcd.create_cluster(&meta(1)).await.unwrap();
    assert_eq!(etcd.load().await.unwrap().meta, meta(1));
    let other = Server::start_encrypted().await;
    let brief = EtcdSettings { timeout: Duration::from_secs(3), ..server.settings() };
    for settings in [
        EtcdSettings { identity: None, ..brief.clone() },
        EtcdSettings { identity: other.settings().identity, ..brief.clone() },
        EtcdSettings { authority: other.settings().authority, ..brief.clone() },
    ] {
        let etcd = Etcd::connect(&settings, ClusterName::parse("barn").unwrap()).await.unwrap();
        let error = etcd.load().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
    }
}

#[tokio::test]
async fn a_user_with_a_password_from_a_file_is_let_in_and_a_wrong_password_is_refused() {
    let server = Server::start().await;
    let mut raw: Client = server.raw().await;
    raw.user_add("root", "straw", None).await.unwrap();
    raw.user_grant_role("root", "root").await.unwrap();
    raw.auth_enable().await.unwrap();
    let error = server.client("barn").await.create_cluster(&meta(1)).await.unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error}");
    let connect = async |line: &str| {
        let path = server.file("user");
        std::fs::write(&path, line).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        let settings = EtcdSettings { user: Some(path), ..server.settings() };
        Etcd::connect(&settings, ClusterName::parse("barn").unwrap()).await
    };
    let etcd = connect("root:straw\n").await.unwrap();
    etcd.create_cluster(&meta(1)).await.unwrap();
    assert_eq!(etcd.load().await.unwrap().meta, meta(1));
    let error = connect("root:hay\n").await.unwrap_err();
    assert!(matches!(error, Error::Refused { .. }) && !error.to_string().contains("hay"), "{error}");
}
