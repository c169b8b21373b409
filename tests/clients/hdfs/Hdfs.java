import java.io.BufferedReader;
import java.io.File;
import java.io.FileWriter;
import java.io.InputStreamReader;
import java.lang.reflect.Field;
import java.net.URL;
import java.net.URLClassLoader;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.SafeModeAction;
import org.apache.hadoop.hdfs.HdfsConfiguration;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.hdfs.MiniDFSNNTopology;
import org.apache.hadoop.hdfs.server.datanode.metrics.DataNodeMetrics;
import org.apache.hadoop.metrics2.lib.MutableCounterLong;

/**
 * Name nodes, the HTTP of each on a port of its own, and one data node, until the input ends. Arguments: a directory, the ports, and perhaps
 * a file of keys in Java's form (PKCS #12, password "changeit"), with which all HTTP is over TLS. Of two name nodes the first one is active.
 *
 * A line "restart" restarts the only name node, "safe" has it refuse writes until "unsafe", "active N" makes another one active, "syncs"
 * prints how often the data node has synced a file; each is answered by "ready".
 */
public final class Hdfs {
    public static void main(String[] arguments) throws Exception {
        String[] ports = arguments[1].split(",");
        File directory = new File(arguments[0]).getAbsoluteFile();
        if (arguments.length > 2) {
            writeSslSettings(directory, arguments[2]);
        }
        Configuration settings = new HdfsConfiguration();
        settings.set(MiniDFSCluster.HDFS_MINIDFS_BASEDIR, directory.getPath());
        settings.set("dfs.webhdfs.enabled", "true");
        settings.set("dfs.permissions.enabled", "false");
        settings.set("dfs.namenode.safemode.extension", "0");
        settings.set("dfs.datanode.hostname", "127.0.0.1");
        MiniDFSCluster.Builder builder = new MiniDFSCluster.Builder(settings).numDataNodes(1);
        if (arguments.length > 2) {
            settings.set("dfs.http.policy", "HTTPS_ONLY");
            settings.set("dfs.namenode.https-address", "127.0.0.1:" + ports[0]);
            settings.set("dfs.datanode.https.address", "127.0.0.1:0");
        } else if (ports.length == 1) {
            builder.nameNodeHttpPort(Integer.parseInt(ports[0]));
        } else {
            MiniDFSNNTopology.NSConf service = new MiniDFSNNTopology.NSConf("ns");
            for (int number = 0; number < ports.length; number++) {
                service.addNN(new MiniDFSNNTopology.NNConf("nn" + number).setHttpPort(Integer.parseInt(ports[number])));
            }
            builder.nnTopology(new MiniDFSNNTopology().addNameservice(service));
        }
        MiniDFSCluster cluster = builder.build();
        if (ports.length > 1) {
            cluster.transitionToActive(0);
        }
        cluster.waitActive();
        System.out.println("ready");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            switch (line) {
                case "restart": cluster.restartNameNode(true); break;
                case "safe": cluster.getFileSystem().setSafeMode(SafeModeAction.ENTER); break;
                case "unsafe": cluster.getFileSystem().setSafeMode(SafeModeAction.LEAVE); break;
                case "active 0": activate(cluster, 1, 0); break;
                case "active 1": activate(cluster, 0, 1); break;
                case "syncs": System.out.println("syncs " + syncs(cluster)); break;
                default: throw new IllegalArgumentException(line);
            }
            System.out.println("ready");
        }
        System.exit(0);
    }

    private static void activate(MiniDFSCluster cluster, int before, int after) throws Exception {
        cluster.transitionToStandby(before);
        cluster.transitionToActive(after);
        cluster.waitActive(after);
    }

    /** The counter itself: what JMX shows of it may be ten seconds old. */
    private static long syncs(MiniDFSCluster cluster) throws Exception {
        Field counter = DataNodeMetrics.class.getDeclaredField("fsyncCount");
        counter.setAccessible(true);
        return ((MutableCounterLong) counter.get(cluster.getDataNodes().get(0).getMetrics())).value();
    }

    /** Where Hadoop looks for them: on the path of classes. */
    private static void writeSslSettings(File directory, String keys) throws Exception {
        File path = new File(directory, "ssl");
        path.mkdirs();
        String[][] settings = {
            {"ssl.server.keystore.location", new File(keys).getAbsolutePath()}, {"ssl.server.keystore.password", "changeit"},
            {"ssl.server.keystore.keypassword", "changeit"}, {"ssl.server.keystore.type", "pkcs12"},
            {"ssl.client.truststore.location", new File(keys).getAbsolutePath()}, {"ssl.client.truststore.password", "changeit"},
            {"ssl.client.truststore.type", "pkcs12"}};
        for (String name : new String[] {"ssl-server.xml", "ssl-client.xml"}) {
            try (FileWriter file = new FileWriter(new File(path, name))) {
                file.write("<configuration>");
                for (String[] one : settings) {
                    file.write("<property><name>" + one[0] + "</name><value>" + one[1] + "</value></property>");
                }
                file.write("</configuration>");
            }
        }
        URL[] places = {path.toURI().toURL()};
        Thread.currentThread().setContextClassLoader(new URLClassLoader(places, Hdfs.class.getClassLoader()));
    }
}
