package figures

import (
	"slices"
	"strconv"
	"strings"
)

// Groups of rows, in the page's order.
const (
	Copy      = "Copy"
	Following = "Following changes"
	Switching = "Switching"
	Far       = "A target far away"
	Proxy     = "Through the proxy"
	Serving   = "Serving the old version"
	Resources = "Resources"
	Workloads = "Workloads"
	Peers     = "Peers"
	Grows     = "Measured"
)

// Steps is the number of sizes in a Scale file. Each is ten times the one before.
const Steps = 3

// Sizes returns the sizes of a Scale file, given the largest.
func Sizes(largest int) (sizes []int) {
	for ; len(sizes) < Steps; largest /= 10 {
		sizes = append(sizes, largest)
	}
	// The smallest comes first, as in the table.
	slices.Reverse(sizes)
	return sizes
}

// Cost returns the name of a Scale row. One scenario measures all rows of a size.
func Cost(size int, what string) string {
	return "cost." + strings.Replace(strconv.FormatFloat(float64(size), 'e', -1, 64), "e+0", "e", 1) + "." + what
}

// ScaleRows returns all rows of a Scale file. They have no bars: only their growth matters.
func ScaleRows(largest int) (rows []Row) {
	for _, figure := range []struct{ what, unit, title string }{
		{"copy", "records/s", "copy"},
		{"ready", "s", "from start to ready"},
		{"cpu", "µs/record", "processor time of the controller until copied"},
		{"memory", "MB", "peak memory of the controller until ready"},
	} {
		for _, n := range Sizes(largest) {
			rows = append(rows, Row{Name: Cost(n, figure.what), Group: Grows, Unit: figure.unit, Title: number(float64(n)) + " records: " + figure.title})
		}
	}
	return rows
}

func least(v float64) *Bar      { return &Bar{Least: v} }
func most(v float64) *Bar       { return &Bar{Most: v} }
func leastRatio(v float64) *Bar { return &Bar{Least: v, Ratio: true} }

// Rows returns all rows except those of peers, in the page's order, with this project's bars. This
// is the only place that sets bars, so a change of one is visible.
func Rows() []Row {
	return []Row{
		{Name: "copy.fixed", Group: Copy, Unit: "records/s", Bar: leastRatio(0.80), Title: "copy of a fixed-name kind, identity"},
		{Name: "copy.fixed.peers", Group: Copy, Unit: "x", Bar: least(1.2), Title: "the same as a multiple of the fastest peer"},
		{Name: "copy.managed", Group: Copy, Unit: "records/s", Bar: leastRatio(0.80), Title: "copy of a managed kind"},
		{Name: "copy.lens", Group: Copy, Unit: "records/s", Bar: leastRatio(0.60), Title: "copy through a lens on 3 of 40 fields"},
		{Name: "cpu.record", Group: Copy, Unit: "µs/record", Bar: most(5), Title: "client CPU for a record of 500 B, copy alone"},
		{Name: "cpu.all.copy", Group: Copy, Unit: "µs/record", Title: "processor time of all processes for a record, copy alone"},
		{Name: "cpu.all.ready", Group: Copy, Unit: "µs/record", Title: "the same until ready"},
		{Name: "cpu.all.limit", Group: Copy, Unit: "µs/record", Title: "the same of the limit"},
		{Name: "cpu.all.managed", Group: Copy, Unit: "µs/record", Title: "the same of a managed kind, copy alone"},
		{Name: "ready.multiple", Group: Copy, Unit: "x", Bar: most(1.7), Title: "from start to ready, as a multiple of the copy"},
		{Name: "ready.peers", Group: Copy, Unit: "x", Bar: most(1.5), Title: "from start to ready, as a multiple of the fastest peer's unverified copy"},
		{Name: "controllers.two", Group: Copy, Unit: "x", Bar: least(1.7), Title: "two controllers as a multiple of one"},
		{Name: "copy.updates", Group: Copy, Unit: "x", Bar: least(0.75), Title: "copy during 500 updates/s, as a multiple of the quiet copy"},
		{Name: "application.p99", Group: Copy, Unit: "ms", Title: "latency of these updates, p99"},
		{Name: "application.peers", Group: Copy, Unit: "x", Bar: most(1), Title: "the same as a multiple of that next to ClusterSync"},

		{Name: "lag.majority.p50", Group: Following, Unit: "ms", Bar: most(25), Title: "lag at 2,000 updates/s, w:majority, p50"},
		{Name: "lag.majority.p99", Group: Following, Unit: "ms", Bar: most(120), Title: "the same, p99"},
		{Name: "lag.w1.p50", Group: Following, Unit: "ms", Bar: most(90), Title: "lag at 2,000 updates/s, w:1, p50"},
		{Name: "lag.w1.p99", Group: Following, Unit: "ms", Bar: most(160), Title: "the same, p99"},
		{Name: "backlog.single", Group: Following, Unit: "ms", Bar: most(300), Title: "lag at 3,000 single updates/s of 50,000 records, p50"},
		{Name: "backlog.bulk", Group: Following, Unit: "ms", Bar: most(300), Title: "lag at 5,000 updates/s in bulks of 50,000 records, p50"},
		{Name: "catchup.distinct", Group: Following, Unit: "changes/s", Bar: least(6000), Title: "catch-up on changes of distinct records"},
		{Name: "catchup.hot", Group: Following, Unit: "changes/s", Bar: least(15000), Title: "catch-up on changes of 50,000 hot records"},

		{Name: "pause.p50", Group: Switching, Unit: "ms", Bar: most(100), Title: "write pause at clients, 2,000 writes/s, p50"},
		{Name: "pause.p99", Group: Switching, Unit: "ms", Bar: most(250), Title: "the same, p99"},
		{Name: "pause.data", Group: Switching, Unit: "x", Bar: most(1.2), Title: "the pause with ten times the data, as a multiple"},
		{Name: "kinds.switch", Group: Switching, Unit: "s", Bar: most(5), Title: "100 kinds of 1,000 records, ready: from begin-upgrade to switched"},
		{Name: "kinds.held", Group: Switching, Unit: "ms", Bar: most(400), Title: "the same: writes held"},
		{Name: "kinds.thousand", Group: Switching, Unit: "s", Title: "1,000 kinds: from begin-upgrade to switched"},

		{Name: "far.lag.100", Group: Far, Unit: "ms", Bar: most(500), Title: "lag at 2,000 updates/s, w:majority, p50, 100 ms there and back"},
		{Name: "far.lag.200", Group: Far, Unit: "ms", Bar: most(1000), Title: "lag at 1,000 updates/s, 200 ms there and back"},
		{Name: "far.split.100", Group: Far, Unit: "ms", Bar: most(500), Title: "the same of a kind that becomes two, 1,000 updates/s, 100 ms"},
		{Name: "far.split.200", Group: Far, Unit: "ms", Bar: most(1000), Title: "the same of a kind that becomes two, 500 updates/s, 200 ms"},
		{Name: "far.ready", Group: Far, Unit: "x", Bar: most(1.3), Title: "from start to ready with 100 ms there and back, as a multiple of that without"},
		{Name: "far.pause.100", Group: Far, Unit: "s", Bar: most(1.5), Title: "write pause of clients behind proxies, 100 ms there and back, p50"},
		{Name: "far.pause.200", Group: Far, Unit: "s", Bar: most(3), Title: "the same, 200 ms there and back"},

		{Name: "proxy.read.p50", Group: Proxy, Unit: "%", Bar: most(15), Title: "what the proxy adds to a read by key of one client, p50"},
		{Name: "proxy.read.relay", Group: Proxy, Unit: "%", Title: "what a relay that only copies bytes adds to it"},
		{Name: "proxy.read.mongos", Group: Proxy, Unit: "%", Title: "what mongos adds to it"},
		{Name: "proxy.write.p50", Group: Proxy, Unit: "%", Bar: most(15), Title: "what the proxy adds to an update by key of one client, p50"},
		{Name: "proxy.write.relay", Group: Proxy, Unit: "%", Title: "what a relay that only copies bytes adds to it"},
		{Name: "proxy.write.mongos", Group: Proxy, Unit: "%", Title: "what mongos adds to it"},
		{Name: "proxy.clients.read", Group: Proxy, Unit: "x", Bar: least(0.8), Title: "reads by key of 32 clients, as a multiple of those without a proxy"},
		{Name: "proxy.clients.read.relay", Group: Proxy, Unit: "x", Title: "the same of a relay that only copies bytes"},
		{Name: "proxy.clients.write", Group: Proxy, Unit: "x", Bar: least(0.8), Title: "updates by key of 32 clients, as a multiple of those without a proxy"},
		{Name: "proxy.clients.write.relay", Group: Proxy, Unit: "x", Title: "the same of a relay that only copies bytes"},
		{Name: "proxy.clients.mongos", Group: Proxy, Unit: "x", Bar: least(1), Title: "the lower of both, as a multiple of those through mongos"},
		{Name: "proxy.scan", Group: Proxy, Unit: "x", Bar: least(0.9), Title: "speed of a scan of 100 MB, as a multiple of that without a proxy"},
		{Name: "proxy.scan.relay", Group: Proxy, Unit: "x", Title: "the same of a relay that only copies bytes"},
		{Name: "proxy.scan.mongos", Group: Proxy, Unit: "x", Title: "the same of mongos"},
		{Name: "proxy.idle", Group: Proxy, Unit: "MB", Bar: most(150), Title: "memory of a proxy for 5,000 idle connections"},
		{Name: "proxy.pause.p50", Group: Proxy, Unit: "ms", Bar: most(120), Title: "write pause of unmodified clients behind two proxies, 500 writes/s, p50"},
		{Name: "proxy.pause.p99", Group: Proxy, Unit: "ms", Bar: most(300), Title: "the same, p99"},
		{Name: "proxy.pause.cursors", Group: Proxy, Unit: "ms", Title: "the same, p50, while eight cursors have 10 MB left each"},

		{Name: "adapt.list.first", Group: Serving, Unit: "x", Bar: most(1.5), Title: "first page of 100,000 records, v1 over v2's data, as a multiple of v1 over its own"},
		{Name: "adapt.list.all", Group: Serving, Unit: "x", Bar: most(1.5), Title: "the same, all pages"},
		{Name: "adapt.list.several.first", Group: Serving, Unit: "x", Bar: most(1.5), Title: "first page where a record is three records of v2"},
		{Name: "adapt.list.several.all", Group: Serving, Unit: "x", Bar: most(1.5), Title: "the same, all pages"},
		{Name: "adapt.list.otherwise.first", Group: Serving, Unit: "x", Bar: most(1.5), Title: "first page where names sort otherwise"},
		{Name: "adapt.list.otherwise.all", Group: Serving, Unit: "x", Bar: most(1.5), Title: "the same, all pages"},
		{Name: "adapt.list.otherwise.fill", Group: Serving, Unit: "ms", Title: "the same, the first list of a server"},

		{Name: "memory.small", Group: Resources, Unit: "MB", Bar: most(200), Title: "peak memory of a controller, records of 500 B"},
		{Name: "memory.large", Group: Resources, Unit: "MB", Bar: most(200), Title: "peak memory of a controller, records of 10 KiB"},
		{Name: "store.read.p50", Group: Resources, Unit: "%", Bar: most(5), Title: "what the store in a server adds to a majority read by the bare driver, its own being such a one, p50"},
		{Name: "store.read.p99", Group: Resources, Unit: "%", Title: "the same, p99"},
		{Name: "store.read.default.p50", Group: Resources, Unit: "%", Title: "what its default, a linearizable read, adds to the driver's majority read, p50"},
		{Name: "store.read.default.p99", Group: Resources, Unit: "%", Title: "the same, p99"},
		{Name: "store.read.linearizable", Group: Resources, Unit: "%", Title: "what it adds to a linearizable read by the driver, p50"},
		{Name: "store.write.p50", Group: Resources, Unit: "%", Bar: most(5), Title: "what it adds to a write, p50"},
		{Name: "store.write.p99", Group: Resources, Unit: "%", Title: "the same, p99"},
		{Name: "etcd.rest", Group: Resources, Unit: "requests/s", Bar: most(10), Title: "etcd requests of a controller whose upgrade is ready, at rest"},
		{Name: "etcd.copying", Group: Resources, Unit: "requests/s", Bar: most(50), Title: "etcd requests of a controller that copies"},
		{Name: "update.rate", Group: Resources, Unit: "records/s", Bar: least(20000), Title: "data update in place"},
		{Name: "update.client.p99", Group: Resources, Unit: "ms", Title: "clients' transactions during a data update, p99"},

		{Name: "workload.large", Group: Workloads, Unit: "records/s", Title: "records of 10 KiB"},
		{Name: "workload.collections", Group: Workloads, Unit: "records/s", Title: "30 collections of very different sizes"},
		{Name: "workload.shuffled", Group: Workloads, Unit: "records/s", Title: "ids in random order of insertion"},
		{Name: "workload.real", Group: Workloads, Unit: "records/s", Title: "real data (examples/packages), through its lens"},
		{Name: "workload.onecluster", Group: Workloads, Unit: "records/s", Title: "both databases in one cluster"},
		{Name: "engines.out", Group: Workloads, Unit: "records/s", Title: "100,000 records from etcd to MongoDB, compared with what etcd itself reads"},
		{Name: "engines.back", Group: Workloads, Unit: "records/s", Title: "100,000 records from MongoDB to etcd, compared with what etcd itself writes"},
		{Name: "workload.shards", Group: Workloads, Unit: "records/s", Title: "a cluster of two shards, through mongos"},
	}
}
