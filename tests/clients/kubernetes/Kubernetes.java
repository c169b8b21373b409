import io.fabric8.kubernetes.api.model.ContainerStateBuilder;
import io.fabric8.kubernetes.api.model.ContainerStatus;
import io.fabric8.kubernetes.api.model.ContainerStatusBuilder;
import io.fabric8.kubernetes.api.model.EnvVar;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.PodBuilder;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.Watcher;
import io.fabric8.kubernetes.client.WatcherException;
import io.fabric8.kubernetes.client.server.mock.KubernetesCrudDispatcher;
import io.fabric8.kubernetes.client.server.mock.KubernetesMockServer;
import io.fabric8.mockwebserver.Context;
import io.fabric8.mockwebserver.MockWebServer;
import java.io.File;
import java.io.IOException;
import java.net.InetAddress;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;

/**
 * An API server, and a node that runs Spark's executor pods as processes of this machine, until the input ends.
 *
 * Takes a directory, in which each pod gets one for its log and its process id, and the home of Spark. What a pod's process is given, its
 * environment and its arguments, is the pod's own; how Spark's image begins an executor from these is done here as
 * in the image's entrypoint.sh (https://github.com/apache/spark, resource-managers/kubernetes).
 */
public final class Kubernetes {
    private static final String LOOPBACK = "127.0.0.1";
    private final File directory;
    private final String home;
    private final KubernetesClient client;
    private final Map<String, Process> processes = new ConcurrentHashMap<>();

    private Kubernetes(File directory, String home, KubernetesClient client) {
        this.directory = directory;
        this.home = home;
        this.client = client;
    }

    public static void main(String[] arguments) throws Exception {
        KubernetesMockServer server = new KubernetesMockServer(
            new Context(), new MockWebServer(), new HashMap<>(), new KubernetesCrudDispatcher(), false);
        server.init(InetAddress.getByName(LOOPBACK), 0);
        Kubernetes node = new Kubernetes(new File(arguments[0]), arguments[1], server.createClient());
        node.client.pods().inAnyNamespace().watch(node.new Pods());
        System.out.println("ready http://" + LOOPBACK + ":" + server.getPort());
        while (System.in.read() >= 0) { }
        node.processes.values().forEach(Process::destroyForcibly);
        System.exit(0);
    }

    private final class Pods implements Watcher<Pod> {
        @Override
        public void eventReceived(Action action, Pod pod) {
            String name = pod.getMetadata().getName();
            try {
                if (action == Action.ADDED) {
                    start(name, pod);
                } else if (action == Action.DELETED && processes.containsKey(name)) {
                    processes.remove(name).destroyForcibly();
                }
            } catch (Exception error) {
                error.printStackTrace();
            }
        }

        @Override
        public void onClose(WatcherException error) { }
    }

    private void start(String name, Pod pod) throws IOException {
        File place = new File(directory, name);
        place.mkdirs();
        ProcessBuilder builder = new ProcessBuilder().directory(place);
        builder.redirectErrorStream(true).redirectOutput(new File(place, "log"));
        Map<String, String> given = builder.environment();
        for (EnvVar variable : pod.getSpec().getContainers().get(0).getEnv()) {
            given.put(variable.getName(), variable.getValue() == null ? LOOPBACK : variable.getValue());
        }
        given.put("SPARK_HOME", home);  // as in the image
        given.put("SPARK_LOCAL_DIRS", place.getPath());
        builder.command(executor(given, name));
        Process process = builder.start();
        processes.put(name, process);
        Files.writeString(new File(place, "pid").toPath(), process.pid() + "\n");
        told(name, "Running", new ContainerStateBuilder().withNewRunning().endRunning());
        process.onExit().thenAccept(ended -> {
            String phase = ended.exitValue() == 0 ? "Succeeded" : "Failed";
            told(name, phase, new ContainerStateBuilder().withNewTerminated().withExitCode(ended.exitValue()).endTerminated());
        });
    }

    private List<String> executor(Map<String, String> given, String name) {
        List<String> command = new ArrayList<>();
        command.add("java");
        Map<Integer, String> options = new TreeMap<>();
        given.forEach((key, value) -> {
            if (key.startsWith("SPARK_JAVA_OPT_")) {
                options.put(Integer.parseInt(key.substring("SPARK_JAVA_OPT_".length())), value);
            }
        });
        command.addAll(options.values());
        command.add("-Xmx" + given.get("SPARK_EXECUTOR_MEMORY"));
        command.add("-cp");
        command.add(home + "/jars/*");
        command.add("org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend");
        String[] pairs = {
            "--driver-url", given.get("SPARK_DRIVER_URL"),
            "--executor-id", given.get("SPARK_EXECUTOR_ID"),
            "--cores", given.get("SPARK_EXECUTOR_CORES"),
            "--app-id", given.get("SPARK_APPLICATION_ID"),
            "--hostname", LOOPBACK,
            "--resourceProfileId", given.get("SPARK_RESOURCE_PROFILE_ID"),
            "--podName", name,
        };
        command.addAll(Arrays.asList(pairs));
        return command;
    }

    private void told(String name, String phase, ContainerStateBuilder state) {
        Pod known = client.pods().inNamespace("default").withName(name).get();
        if (known == null) {
            return;  // deleted meanwhile
        }
        ContainerStatus container = new ContainerStatusBuilder()
            .withName(known.getSpec().getContainers().get(0).getName())
            .withState(state.build())
            .build();
        client.pods().inNamespace("default").resource(new PodBuilder(known)
            .withNewStatus().withPhase(phase).withPodIP(LOOPBACK).withContainerStatuses(container).endStatus()
            .build()).updateStatus();
    }
}
