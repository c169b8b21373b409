import org.codelibs.opensearch.runner.OpenSearchRunner;

/** One node of OpenSearch with HTTP, until its standard input ends. Arguments: a directory, and the port. */
public final class OpenSearch {
    public static void main(String[] arguments) throws Exception {
        OpenSearchRunner runner = new OpenSearchRunner();
        runner.onBuild((number, settings) -> {
            settings.put("http.port", arguments[1]);
            settings.put("http.host", "127.0.0.1");
            settings.put("transport.host", "127.0.0.1");
            settings.put("transport.port", "0");
            settings.put("discovery.type", "single-node");
            settings.put("cluster.routing.allocation.disk.threshold_enabled", false);
        });
        runner.build(OpenSearchRunner.newConfigs().basePath(arguments[0]).numOfNode(1).clusterName("sinks"));
        System.out.println("ready");
        while (System.in.read() >= 0) { }
        runner.close();
    }
}
