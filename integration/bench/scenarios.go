package main

import "time"

// scenarios returns all scenarios. Those with bars come first, so that they get all their runs if
// time runs out.
func scenarios() []scenario {
	return append([]scenario{
		{name: "copy of a fixed-name kind", rows: []string{"copy.fixed", "cpu.record", "cpu.all.copy", "cpu.all.ready", "cpu.all.limit", "ready.multiple", "memory.small", "etcd.copying", "etcd.rest"}, deadline: 3 * time.Minute, run: copyFixed},
		{name: "copy of a managed kind", rows: []string{"copy.managed", "cpu.all.managed"}, run: copyManaged},
		{name: "copy through a lens", rows: []string{"copy.lens"}, run: copyOf("copy.lens", "of 40 fields and about 1.4 KB, of which the lens renames, converts and moves three", func(b *bench) (dataset, error) { return b.wide(), nil })},
		{name: "two controllers", rows: []string{"controllers.two"}, run: twoControllers},
		{name: "copy during updates", rows: []string{"copy.updates", "application.p99", "application.peers"}, run: copyBesideUpdates},
		{name: "lag", rows: []string{"lag.majority.p50", "lag.majority.p99", "lag.w1.p50", "lag.w1.p99", "backlog.single", "backlog.bulk"}, run: following},
		{name: "catch-up", rows: []string{"catchup.distinct", "catchup.hot"}, run: catchUp},
		{name: "pause", rows: []string{"pause.p50", "pause.p99"}, run: pauses},
		{name: "proxy", rows: []string{
			"proxy.read.p50", "proxy.read.relay", "proxy.read.mongos", "proxy.write.p50", "proxy.write.relay", "proxy.write.mongos",
			"proxy.clients.read", "proxy.clients.read.relay", "proxy.clients.write", "proxy.clients.write.relay", "proxy.clients.mongos",
			"proxy.scan", "proxy.scan.relay", "proxy.scan.mongos", "proxy.idle",
		}, run: proxySpeed},
		{name: "pause behind proxies", rows: []string{"proxy.pause.p50", "proxy.pause.p99", "proxy.pause.cursors"}, run: proxyPauses},
		{name: "many kinds", rows: []string{"kinds.switch", "kinds.held"}, run: manyKinds},
		{name: "store in a server", rows: []string{"store.read.p50", "store.read.p99", "store.read.default.p50", "store.read.default.p99", "store.read.linearizable", "store.write.p50", "store.write.p99"}, run: storeLatency},
		{name: "data update", rows: []string{"update.rate"}, run: updateInPlace},
		{name: "data update during clients' writes", rows: []string{"update.client.p99"}, run: updateBesideClients},
		{name: "lists of the old version", rows: []string{
			"adapt.list.first", "adapt.list.all", "adapt.list.several.first", "adapt.list.several.all",
			"adapt.list.otherwise.first", "adapt.list.otherwise.all", "adapt.list.otherwise.fill",
		}, run: lists},
		{name: "large records", rows: []string{"workload.large", "memory.large"}, run: copyLarge},
		{name: "many collections", rows: []string{"workload.collections"}, run: copyOf("workload.collections", "in 30 collections from 10 up to a third of all", func(b *bench) (dataset, error) { return b.many(), nil })},
		{name: "shuffled ids", rows: []string{"workload.shuffled"}, run: copyOf("workload.shuffled", "inserted in random order of their ids", func(b *bench) (dataset, error) { return b.shuffled(), nil })},
		{name: "real data", rows: []string{"workload.real"}, run: copyOf("workload.real", "of the Debian package index (examples/packages), ids of mixed types, through packages.yaml", (*bench).real)},
		{name: "one cluster", rows: []string{"workload.onecluster"}, run: copyInOne},
		{name: "across engines", rows: []string{"engines.out", "engines.back"}, deadline: 3 * time.Minute, run: acrossEngines},
		{name: "pause over more data", rows: []string{"pause.data"}, deadline: 100 * time.Second, run: pauseOfMore},
		{name: "a thousand kinds", rows: []string{"kinds.thousand"}, rounds: 1, deadline: 4 * time.Minute, run: thousandKinds},
		{name: "far target", rows: []string{"far.lag.100", "far.lag.200", "far.split.100", "far.split.200", "far.ready"}, rounds: 1, deadline: 6 * time.Minute, run: farLags},
		{name: "pause with a far target", rows: []string{"far.pause.100", "far.pause.200"}, rounds: 1, deadline: 6 * time.Minute, run: farPauses},
		{name: "two shards", rows: []string{"workload.shards"}, run: copySharded},
	}, peerScenarios()...)
}

// neverMeasured gives some rows the reason why they have no figure. A measurement replaces it.
func neverMeasured(s *sheet) {
	const none = "no peer is on this machine (see below)."
	for _, row := range []string{"copy.fixed.peers", "ready.peers"} {
		s.missing(row, none)
	}
	s.missing("application.peers", "no application was measured next to Percona ClusterSync.")
}
