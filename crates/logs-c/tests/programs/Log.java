import furrow.LogFile;
import furrow.LogReader;
import java.io.IOException;
import java.nio.file.Path;

/**
 * Writes the records of the test to a log: Log PATH [DRIVE]. A log on a drive is copied to standard output and removed. With "limited" in the place of a drive the log is an ordinary file
 * that may not grow beyond 1 MiB.
 */
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

  /** Room of 16 MiB does not fit below the limit: the log goes on without. */
  static void writeWithoutRoom(Path path) throws Exception {
    try (LogFile log = LogFile.create(path, LogFile.Options.DEFAULT)) {
      String failure = null;
      for (int tries = 0; failure == null && tries < 1000; tries++) {
        failure = log.roomFailure();
        Thread.sleep(10);
      }
      check(failure != null && failure.contains("too large"), "the cause is " + failure);
      log.sync(log.append(new byte[6]));
    }
  }

  public static void main(String[] args) throws Exception {
    Path path = Path.of(args[0]);
    if (args.length > 1 && args[1].equals("limited")) {
      writeWithoutRoom(path);
      return;
    }
    String drive = args.length > 1 ? args[1] : null;
    LogFile.Options options = new LogFile.Options(LogFile.How.THREAD, 512, 65536, 0, null, drive);
    LogFile.Options onDrive = drive == null ? LogFile.Options.DEFAULT : LogFile.Options.onDrive(drive);
    long wanted = 0;
    LogFile log = LogFile.create(path, options);
    refused(drive == null ? "one writer" : "writer already", () -> LogFile.open(path, 0, options));
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
    check(log.roomFailure() == null, "room failed");
    LogFile.Options file = new LogFile.Options(LogFile.How.THREAD, 512, 65536, 0, null, null);
    refused("", () -> LogFile.create(Path.of("/dev/shm/furrow-" + ProcessHandle.current().pid()), file));
    refused("were appended", () -> log.sync(all + 1));
    log.close();
    log.close();
    refused("closed", () -> log.append(new byte[1]));
    refused(drive == null ? "cannot open" : "cannot create", () -> LogFile.create(path, options));
    try (LogFile more = LogFile.open(path, wanted, onDrive)) {
      more.append("end".getBytes("US-ASCII"));
    }
    byte[] content = new byte[(int) wanted + 3];
    LogReader reader = LogReader.open(path, onDrive);
    check(reader.length() == content.length, "the log has another length");
    check(reader.read(0, content) == content.length, "a read is short");
    check(reader.read(content.length, new byte[1]) == 0, "a read behind the end");
    reader.close();
    reader.close();
    refused("closed", () -> reader.read(0, new byte[1]));
    if (drive != null) {
      System.out.write(content);
      System.out.flush();
      LogFile.remove(path, onDrive);
      refused("cannot remove", () -> LogFile.remove(path, onDrive));
    }
  }
}
