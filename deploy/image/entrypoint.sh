#!/bin/sh
# Spark on Kubernetes starts an executor's pod with the argument "executor" and says the rest in variables. Whatever
# else comes is a command.
set -eu

if [ "${1:-}" != executor ]; then
    exec "$@"
fi

# Options of the JVM come one to a variable, in no order.
set --
i=0
while option=$(printenv "SPARK_JAVA_OPT_$i"); do
    set -- "$@" "$option"
    i=$((i + 1))
done

exec "$JAVA_HOME/bin/java" "$@" \
    -Xms"$SPARK_EXECUTOR_MEMORY" -Xmx"$SPARK_EXECUTOR_MEMORY" \
    -cp "${SPARK_CONF_DIR:-$SPARK_HOME/conf}:${SPARK_CLASSPATH:-}:$SPARK_HOME/jars/*" \
    org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
    --driver-url "$SPARK_DRIVER_URL" \
    --executor-id "$SPARK_EXECUTOR_ID" \
    --cores "$SPARK_EXECUTOR_CORES" \
    --app-id "$SPARK_APPLICATION_ID" \
    --hostname "$SPARK_EXECUTOR_POD_IP" \
    --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
    --podName "$SPARK_EXECUTOR_POD_NAME"
