import java.io.FileOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.apache.zookeeper.AsyncCallback.DataCallback;
import org.apache.zookeeper.AsyncCallback.StatCallback;
import org.apache.zookeeper.AsyncCallback.StringCallback;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.ZooDefs.Ids;
import org.apache.zookeeper.ZooKeeper;

/**
 * A client of the ensemble.
 *
 * <p>{@code Load write SERVERS CREDENTIALS NODES BYTES RATE FILE} makes the nodes that are missing, then writes RATE values a second to them until it is killed. A value begins with its
 * number. For each acknowledged write FILE gets a line: number, node, the node's version, Unix milliseconds of the acknowledgement, microseconds since the write was due. The process prints
 * "filled", then the number of acknowledged writes each second.
 *
 * <p>{@code Load read SERVER CREDENTIALS NODES FILE} writes a line for each node to FILE: node, version, number in the value.
 */
public final class Load {
    private static final int IN_FLIGHT = 64;
    /** A writer that is later than this gives the writes up that were due: the ensemble had no leader. */
    private static final long LATE_NANOS = 1_000_000_000L;

    private final ZooKeeper client;
    private final int nodes;
    private final Semaphore free = new Semaphore(IN_FLIGHT);

    private Load(String servers, String credentials, int nodes) throws Exception {
        this.nodes = nodes;
        client = new ZooKeeper(servers, 20_000, event -> { });
        client.addAuthInfo("digest", credentials.getBytes(StandardCharsets.UTF_8));
    }

    public static void main(String[] args) throws Exception {
        Load load = new Load(args[1], args[2], Integer.parseInt(args[3]));
        if (args[0].equals("read")) {
            load.read(Path.of(args[4]));
            return;
        }
        int bytes = Integer.parseInt(args[4]);
        load.prepare();
        load.fill(bytes);
        System.out.println("filled");
        try (FileOutputStream acknowledgements = new FileOutputStream(args[6], true)) {
            load.write(bytes, Integer.parseInt(args[5]), acknowledgements);
        }
    }

    /** Makes the parent node, and restricts snapshots to the owner of the root. */
    private void prepare() throws Exception {
        while (true) {
            try {
                if (client.exists("/load", false) == null) {
                    client.create("/load", new byte[0], Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
                    client.setACL("/", Ids.CREATOR_ALL_ACL, -1);
                }
                return;
            } catch (KeeperException.ConnectionLossException error) {
                Thread.sleep(200);
            }
        }
    }

    private void waitForAnswers() throws InterruptedException {
        free.acquire(IN_FLIGHT);
        free.release(IN_FLIGHT);
    }

    private void fill(int bytes) throws Exception {
        if (client.exists("/load/" + (nodes - 1), false) != null) {
            return;
        }
        StringCallback created = (code, path, context, name) -> free.release();
        for (int node = 0; node < nodes; node++) {
            free.acquire();
            client.create("/load/" + node, value(-1, bytes), Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT, created, null);
        }
        waitForAnswers();
    }

    private static byte[] value(long number, int bytes) {
        return ByteBuffer.allocate(bytes).putLong(number).array();
    }

    private void write(int bytes, int rate, FileOutputStream acknowledgements) throws InterruptedException {
        AtomicLong acknowledged = new AtomicLong();
        long first = System.currentTimeMillis() * 1_000;
        long due = System.nanoTime();
        for (long write = 0; ; write++) {
            due += 1_000_000_000L / rate;
            LockSupport.parkNanos(due - System.nanoTime());
            free.acquire();
            if (System.nanoTime() - due > LATE_NANOS) {
                due = System.nanoTime();
            }
            long number = first + write;
            int node = (int) (write % nodes);
            long dueAt = due;
            StatCallback written = (code, path, context, stat) -> {
                if (code == 0) {
                    long micros = (System.nanoTime() - dueAt) / 1_000;
                    String line = number + " " + node + " " + stat.getVersion() + " " + System.currentTimeMillis() + " " + micros + "\n";
                    try {
                        // One system call a line: a line is whole, but for the last one of a killed process.
                        acknowledgements.write(line.getBytes(StandardCharsets.US_ASCII));
                    } catch (IOException error) {
                        throw new UncheckedIOException(error);
                    }
                    acknowledged.incrementAndGet();
                }
                free.release();
            };
            client.setData("/load/" + node, value(number, bytes), -1, written, null);
            if (write % rate == rate - 1) {
                System.out.println(acknowledged.get());
            }
        }
    }

    private void read(Path into) throws Exception {
        while (true) {
            try {
                // A server that was behind the leader has all acknowledged writes after this.
                Semaphore synced = new Semaphore(0);
                AtomicInteger result = new AtomicInteger();
                client.sync("/load", (code, path, context) -> {
                    result.set(code);
                    synced.release();
                }, null);
                synced.acquire();
                if (result.get() == 0) {
                    break;
                }
            } finally {
                Thread.sleep(100);
            }
        }
        AtomicInteger failures = new AtomicInteger();
        StringBuffer lines = new StringBuffer();
        DataCallback found = (code, path, context, data, stat) -> {
            if (code == 0) {
                lines.append(context).append(' ').append(stat.getVersion()).append(' ').append(ByteBuffer.wrap(data).getLong()).append('\n');
            } else {
                failures.incrementAndGet();
            }
            free.release();
        };
        for (int node = 0; node < nodes; node++) {
            free.acquire();
            client.getData("/load/" + node, false, found, node);
        }
        waitForAnswers();
        client.close();
        Files.writeString(into, lines);
        if (failures.get() > 0) {
            System.err.println(failures.get() + " nodes were not read");
            System.exit(1);
        }
    }
}
