import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import redis.clients.jedis.BuilderFactory;
import redis.clients.jedis.ClusterPipeline;
import redis.clients.jedis.CommandArguments;
import redis.clients.jedis.CommandObject;
import redis.clients.jedis.Connection;
import redis.clients.jedis.ConnectionPool;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.RedisClusterClient;
import redis.clients.jedis.Response;
import redis.clients.jedis.Transaction;
import redis.clients.jedis.builders.ClusterClientBuilder;
import redis.clients.jedis.commands.ProtocolCommand;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.resps.ScanResult;
import redis.clients.jedis.util.JedisClusterCRC16;

/** Sends the list of commands, or a load, by Jedis. Arguments: `commands LIST PORTS`, `load FILE PORTS` or `patient FILE PORTS`. See scripts/clients.sh. */
public class JedisClient {
  static final long BEFORE_REPLICAS = 1500;
  static final int WORKERS = 2;
  static final long PACE = 20;
  static final Pattern WORD = Pattern.compile("\"([^\"]*)\"|(\\S+)");
  static final List<String> KEYLESS = List.of("CLUSTER", "COMMAND", "READONLY", "READWRITE", "SELECT");

  record Command(int number, List<String> words) {}

  /** A kind (a space, or the line's first character), and commands with the numbers of their lines. */
  record Step(char kind, List<Command> commands) {
    Command last() {
      return commands.get(commands.size() - 1);
    }
  }

  static Set<HostAndPort> nodes(List<String> ports) {
    return ports.stream().map(port -> new HostAndPort("127.0.0.1", Integer.parseInt(port))).collect(Collectors.toSet());
  }

  /** The words of a command; double quotes enclose a word with spaces. */
  static List<String> wordsOf(String text) {
    List<String> words = new ArrayList<>();
    for (Matcher found = WORD.matcher(text); found.find(); ) words.add(found.group(2) == null ? found.group(1) : found.group(2));
    return words;
  }

  static List<Step> readSteps(String path) throws IOException {
    List<Step> steps = new ArrayList<>();
    char last = 0;
    int number = 0;
    for (String text : Files.readAllLines(Path.of(path))) {
      String line = text.strip();
      number++;
      char kind = line.length() > 2 && line.charAt(1) == ' ' && "|&~=".indexOf(line.charAt(0)) >= 0 ? line.charAt(0) : ' ';
      if (!line.isEmpty() && !line.startsWith("#")) {
        Command command = new Command(number, wordsOf(kind == ' ' ? line : line.substring(2)));
        boolean joins = (kind == '|' || kind == '&') && last == kind;
        if (!joins) steps.add(new Step(kind, new ArrayList<>()));
        steps.get(steps.size() - 1).commands().add(command);
      }
      last = line.isEmpty() ? 0 : kind;
    }
    return steps;
  }

  /** The words as Jedis sends them: the first word behind the name is the key, except in commands without keys. */
  static CommandArguments arguments(List<String> words) {
    ProtocolCommand name = () -> words.get(0).getBytes(StandardCharsets.UTF_8);
    CommandArguments arguments = new CommandArguments(name);
    for (int n = 1; n < words.size(); n++) {
      if (n == 1 && !KEYLESS.contains(words.get(0))) arguments.key(words.get(n));
      else arguments.add(words.get(n));
    }
    return arguments;
  }

  static CommandObject<Object> command(List<String> words) {
    return new CommandObject<>(arguments(words), BuilderFactory.RAW_OBJECT);
  }

  static String quote(String text) {
    StringBuilder quoted = new StringBuilder("\"");
    for (char c : text.toCharArray()) {
      if (c == '"' || c == '\\') quoted.append('\\').append(c);
      else if (c < ' ') quoted.append(String.format("\\u%04x", (int) c));
      else quoted.append(c);
    }
    return quoted.append('"').toString();
  }

  /** A reply as JSON. */
  static String json(Object reply) {
    if (reply instanceof Throwable) {
      Throwable error = (Throwable) reply;
      return "{\"error\": " + quote(error.getClass().getSimpleName() + ": " + error.getMessage()) + "}";
    }
    if (reply instanceof byte[]) return quote(new String((byte[]) reply, StandardCharsets.UTF_8));
    if (reply instanceof List) return ((List<?>) reply).stream().map(JedisClient::json).collect(Collectors.joining(", ", "[", "]"));
    if (reply == null || reply instanceof Number || reply instanceof Boolean) return String.valueOf(reply);
    return quote(String.valueOf(reply));
  }

  static String attempt(Callable<Object> action) {
    try {
      return json(action.call());
    } catch (Exception error) {
      return json(error);
    }
  }

  static Object pipeline(RedisClusterClient cluster, List<Command> commands) {
    List<Response<Object>> responses = new ArrayList<>();
    try (ClusterPipeline pipeline = cluster.pipelined()) {
      for (Command one : commands) responses.add(pipeline.executeCommand(command(one.words())));
      pipeline.sync();
    }
    List<Object> replies = new ArrayList<>();
    for (Response<Object> response : responses) {
      try {
        replies.add(response.get());
      } catch (RuntimeException error) {
        replies.add(error);
      }
    }
    return replies;
  }

  /** A transaction on a connection to the node of its first key: a cluster's client has none of its own. */
  static Object transaction(RedisClusterClient cluster, List<Command> commands) {
    int slot = JedisClusterCRC16.getSlot(commands.get(0).words().get(1));
    try (Connection connection = cluster.getConnectionFromSlot(slot); Transaction transaction = new Transaction(connection)) {
      for (Command one : commands) transaction.executeCommand(command(one.words()));
      return transaction.exec();
    }
  }

  static Object allKeys(RedisClusterClient cluster) {
    List<String> keys = new ArrayList<>();
    for (ConnectionPool pool : cluster.getClusterNodes().values()) {
      try (Jedis node = new Jedis(pool.getResource())) {
        String cursor = ScanParams.SCAN_POINTER_START;
        do {
          ScanResult<String> found = node.scan(cursor);
          keys.addAll(found.getResult());
          cursor = found.getCursor();
        } while (!cursor.equals(ScanParams.SCAN_POINTER_START));
      }
    }
    Collections.sort(keys);
    return keys;
  }

  static void sendCommands(String path, List<String> ports) throws Exception {
    RedisClusterClient cluster = RedisClusterClient.builder().nodes(nodes(ports)).build();
    RedisClusterClient replicas = null;
    for (Step step : readSteps(path)) {
      List<String> words = step.last().words();
      String reply;
      switch (step.kind()) {
        case '|': reply = attempt(() -> pipeline(cluster, step.commands())); break;
        case '&': reply = attempt(() -> transaction(cluster, step.commands())); break;
        case '=': reply = attempt(() -> allKeys(cluster)); break;
        case '~':
          if (replicas == null) {
            Thread.sleep(BEFORE_REPLICAS);
            DefaultJedisClientConfig config = DefaultJedisClientConfig.builder().readOnlyForRedisClusterReplicas().build();
            replicas = RedisClusterClient.builder().nodes(nodes(ports)).clientConfig(config).build();
          }
          RedisClusterClient reader = replicas;
          reply = attempt(() -> reader.executeCommandToReplica(command(words)));
          break;
        default: reply = attempt(() -> cluster.executeCommand(command(words)));
      }
      System.out.println(step.last().number() + "\t" + reply);
    }
  }

  /** Writes one key after the other, and reads each back. */
  static class Worker extends Thread {
    final RedisClusterClient cluster;
    final int number;
    final List<String> acknowledged = new ArrayList<>();
    final Map<String, Integer> errors = new TreeMap<>();
    int wrong;
    long longest;
    volatile boolean stopping;

    Worker(RedisClusterClient cluster, int number) {
      this.cluster = cluster;
      this.number = number;
    }

    @Override
    public void run() {
      int n = 0;
      while (!stopping) {
        String key = "jedis:" + number + ":" + n, value = "value" + n;
        long begun = System.nanoTime();
        try {
          cluster.set(key, value);
          acknowledged.add(key + "\t" + value);
          n++;
          if (!value.equals(cluster.get(key))) wrong++;
        } catch (RuntimeException error) {
          // Whatever the library raises reaches the program. The outcome of a write is open: it is sent again.
          String text = error.getClass().getSimpleName() + ": " + error.getMessage();
          errors.merge(text.substring(0, Math.min(120, text.length())), 1, Integer::sum);
        }
        longest = Math.max(longest, System.nanoTime() - begun);
        try {
          Thread.sleep(PACE);
        } catch (InterruptedException error) {
          return;
        }
      }
    }
  }

  static void load(String path, RedisClusterClient cluster) throws Exception {
    List<Worker> workers = new ArrayList<>();
    for (int number = 0; number < WORKERS; number++) workers.add(new Worker(cluster, number));
    workers.forEach(Thread::start);
    System.out.println("ready");
    // The input ends when the load is to end, and with the program that started this one.
    System.in.readAllBytes();
    for (Worker worker : workers) worker.stopping = true;
    for (Worker worker : workers) worker.join();
    List<String> acknowledged = new ArrayList<>();
    Map<String, Integer> errors = new TreeMap<>();
    int wrong = 0;
    long longest = 0;
    for (Worker worker : workers) {
      acknowledged.addAll(worker.acknowledged);
      worker.errors.forEach((text, count) -> errors.merge(text, count, Integer::sum));
      wrong += worker.wrong;
      longest = Math.max(longest, worker.longest);
    }
    Files.write(Path.of(path), acknowledged);
    String shown = errors.entrySet().stream().map(e -> quote(e.getKey()) + ": " + e.getValue()).collect(Collectors.joining(", ", "{", "}"));
    System.out.println("{\"errors\": " + shown + ", \"wrong\": " + wrong + ", \"longest_s\": " + longest / 1e9 + "}");
  }

  public static void main(String[] args) throws Exception {
    List<String> ports = Arrays.asList(args).subList(2, args.length);
    ClusterClientBuilder<RedisClusterClient> builder = RedisClusterClient.builder().nodes(nodes(ports));
    switch (args[0]) {
      case "load": load(args[1], builder.build()); break;
      // With so many attempts a failover's second passes within one call.
      case "patient": load(args[1], builder.maxAttempts(10).maxTotalRetriesDuration(Duration.ofSeconds(10)).build()); break;
      default: sendCommands(args[1], ports);
    }
    System.exit(0);
  }
}
