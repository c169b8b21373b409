import java.io.File;
import java.io.FileOutputStream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;

/** A resource manager and one node manager, until the input ends. Writes what clients need into a directory. */
public final class Yarn {
    public static void main(String[] arguments) throws Exception {
        File directory = new File(arguments[0]);
        System.setProperty("test.build.data", new File(directory, "data").getPath());
        YarnConfiguration settings = new YarnConfiguration();
        settings.set("fs.defaultFS", "file:///");
        settings.setBoolean("yarn.nodemanager.vmem-check-enabled", false);
        settings.setBoolean("yarn.nodemanager.pmem-check-enabled", false);
        settings.setInt("yarn.scheduler.minimum-allocation-mb", 128);
        settings.setInt("yarn.nodemanager.resource.memory-mb", 4096);
        settings.setInt("yarn.nodemanager.resource.cpu-vcores", 4);
        settings.set("yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage", "99.9");
        settings.set("yarn.scheduler.capacity.root.queues", "default");
        settings.set("yarn.scheduler.capacity.root.default.capacity", "100");
        settings.set("yarn.scheduler.capacity.maximum-am-resource-percent", "0.9");
        MiniYARNCluster cluster = new MiniYARNCluster("logboom", 1, 1, 1);
        cluster.init(settings);
        cluster.start();
        Configuration storage = new Configuration(false);
        storage.set("fs.defaultFS", "file:///");
        write(storage, new File(directory, "core-site.xml"));
        write(cluster.getConfig(), new File(directory, "yarn-site.xml"));
        System.out.println("ready");
        while (System.in.read() >= 0) { }
        cluster.stop();
        System.exit(0);
    }

    private static void write(Configuration settings, File file) throws Exception {
        try (FileOutputStream out = new FileOutputStream(file)) {
            settings.writeXml(out);
        }
    }
}
