import java.nio.charset.StandardCharsets;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.zookeeper.AsyncCallback.StatCallback;
import org.apache.zookeeper.AsyncCallback.StringCallback;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.ZooDefs.Ids;
import org.apache.zookeeper.ZooKeeper;

/**
 * Fills an ensemble, then writes to its nodes until it is killed. The arguments: the servers, credentials of the owner of the root, nodes, bytes of
 * each, writes a second. Prints "filled", then the number of acknowledged writes each second.
 */
public final class Load {
    private static final int IN_FLIGHT = 64;

    public static void main(String[] args) throws Exception {
        int nodes = Integer.parseInt(args[2]);
        byte[] value = new byte[Integer.parseInt(args[3])];
        int rate = Integer.parseInt(args[4]);
        ZooKeeper client = new ZooKeeper(args[0], 20_000, event -> { });
        client.addAuthInfo("digest", args[1].getBytes(StandardCharsets.UTF_8));
        while (true) {
            try {
                if (client.exists("/load", false) == null) {
                    client.create("/load", new byte[0], Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
                }
                client.setACL("/", Ids.CREATOR_ALL_ACL, -1);
                break;
            } catch (KeeperException.ConnectionLossException error) {
                Thread.sleep(200);
            }
        }
        Semaphore free = new Semaphore(IN_FLIGHT);
        StringCallback created = (code, path, context, name) -> free.release();
        for (int node = 0; node < nodes; node++) {
            free.acquire();
            client.create("/load/" + node, value, Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT, created, null);
        }
        free.acquire(IN_FLIGHT);
        free.release(IN_FLIGHT);
        System.out.println("filled");
        AtomicLong acknowledged = new AtomicLong();
        StatCallback written = (code, path, context, stat) -> {
            free.release();
            if (code == 0) {
                acknowledged.incrementAndGet();
            }
        };
        for (int write = 0; ; write++) {
            free.acquire();
            client.setData("/load/" + write % nodes, value, -1, written, null);
            if (write % rate == rate - 1) {
                System.out.println(acknowledged.get());
            }
            Thread.sleep(1000 / rate);
        }
    }
}
