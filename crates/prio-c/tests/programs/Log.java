import furrow.LogFile;
import java.io.IOException;
import java.nio.file.Path;

/** Writes the records of the test to a log. */
public final class Log {
  static void check(boolean what, String text) {
    if (!what) {
      throw new AssertionError(text);
    }
  }

  interface Call {
    void run() throws IOException;
  }

  static void refused(String word, Call call) {
    try {
      call.run();
    } catch (IOException refusal) {
      check(refusal.getMessage().contains(word), refusal.getMessage());
      return;
    }
    throw new AssertionError("was not refused: " + word);
  }

  public static void main(String[] args) throws Exception {
    Path path = Path.of(args[0]);
    LogFile.Options options = new LogFile.Options(LogFile.How.THREAD, 512, 65536, 0, null);
    long wanted = 0;
    LogFile log = LogFile.create(path, options);
    refused("one writer", () -> LogFile.open(path, 0, options));
    for (int n = 0; n < 300; n++) {
      byte[] record = new byte[1 + (n * 37) % 1000];
      for (int i = 0; i < record.length; i++) {
        record[i] = (byte) ((n * 7 + i) % 255 + 1);
      }
      wanted += record.length;
      check(log.append(record) == wanted, "an append ends elsewhere");
      if (n % 3 == 0) {
        log.sync(wanted);
        check(log.durable() >= wanted, "a sync left something");
      }
    }
    long all = wanted;
    log.isRealTime();
    refused("", () -> LogFile.create(Path.of("/dev/shm/furrow-" + ProcessHandle.current().pid()), options));
    refused("were appended", () -> log.sync(all + 1));
    log.close();
    log.close();
    refused("closed", () -> log.append(new byte[1]));
    refused("cannot open", () -> LogFile.create(path, options));
    try (LogFile more = LogFile.open(path, wanted, LogFile.Options.DEFAULT)) {
      more.append("end".getBytes("US-ASCII"));
    }
  }
}
