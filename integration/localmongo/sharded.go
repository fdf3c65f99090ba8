package localmongo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"dbcontroller.dev/integration/subprocess"
)

// configName is the name of the config server's replica set, which is never a shard.
const configName = "config0"

// Shard is one shard of a sharded cluster.
type Shard struct {
	// Name is the shard's name in cluster commands such as moveRange.
	Name string
	// URI is the connection string of the shard itself, not of mongos, for tests that inspect its
	// stored data.
	URI string

	nodes []*Node
}

// Nodes returns the members of the shard.
func (s Shard) Nodes() []*Node { return append([]*Node(nil), s.nodes...) }

// startSharded runs o.Shards replica sets, a config server and the mongoses in a new data folder, and
// joins them to one cluster.
func startSharded(ctx context.Context, p place, o Options) (_ *Server, err error) {
	data, err := makeDataDir(o.Dir)
	if err != nil {
		return nil, err
	}
	s := newServer(data)
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Stop(ctx))
		}
	}()
	members := o.Shards * o.Nodes
	ports, err := subprocess.FreePorts(members + 1 + o.Routers)
	if err != nil {
		return nil, err
	}
	secret := newSecret()
	var sets [][]*Node // one for each shard, then one for the config server
	for i, port := range ports {
		dir, err := makeNodeDir(data.path, i, secret, o)
		if err != nil {
			return nil, err
		}
		switch {
		case i < members:
			// The members of a shard are neighbours in the list of nodes.
			name := fmt.Sprintf("shard%d", i/o.Nodes)
			n := newNode(p, dir, port, name, o)
			// By default, a range that moved away is deleted after 15 minutes, and cannot move back
			// before that.
			n.args = append(n.args, "--shardsvr", "--setParameter", "orphanCleanupDelaySecs=1")
			s.nodes = append(s.nodes, n)
			if i%o.Nodes == 0 {
				s.shards = append(s.shards, Shard{Name: name})
				sets = append(sets, nil)
			}
			sets[len(sets)-1] = append(sets[len(sets)-1], n)
		case i == members:
			n := newNode(p, dir, port, configName, o)
			// By default, resharding and the operations built on it take at least five minutes, and
			// check their progress only after half a minute.
			n.args = append(n.args, "--configsvr", "--setParameter", "reshardingMinimumOperationDurationMillis=0",
				"--setParameter", "reshardingDelayBeforeRemainingOperationTimeQueryMillis=0")
			s.nodes = append(s.nodes, n)
			sets = append(sets, []*Node{n})
		default:
			s.nodes = append(s.nodes, newRouter(p, dir, port, s.nodes[members], o))
		}
	}
	// The shards and the config server first; mongos needs a config server that is up.
	if err := startAll(ctx, s.nodes[:members+1]); err != nil {
		return nil, err
	}
	for i, nodes := range sets {
		name := configName
		if i < len(s.shards) {
			name = s.shards[i].Name
			s.shards[i].nodes = nodes
		}
		uri, err := form(ctx, name, nodes, i == len(s.shards), secret, o)
		if err != nil {
			return nil, fmt.Errorf("replica set %s: %w", name, err)
		}
		if i < len(s.shards) {
			s.shards[i].URI = uri
		}
	}
	// mongos backs off for long if it finds no config server, so it starts last.
	routers := s.nodes[members+1:]
	if err := startAll(ctx, routers); err != nil {
		return nil, err
	}
	login, query := "", "appName=localmongo"
	if o.Auth {
		login, query = rootUser+":"+secret+"@", "authSource=admin"
	}
	addrs := make([]string, len(routers))
	for i, r := range routers {
		addrs[i] = r.addr
	}
	s.uri = "mongodb://" + login + strings.Join(addrs, ",") + "/?" + query
	return s, s.join(ctx)
}

// newRouter prepares the mongos of a cluster with this config server.
func newRouter(p place, dir string, port int, config *Node, o Options) *Node {
	n := &Node{
		addr:    net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
		dir:     dir,
		place:   p,
		program: p.mongos,
		args: []string{
			"--configdb", configName + "/" + config.addr,
			"--bind_ip", "127.0.0.1",
			"--port", strconv.Itoa(port),
			"--nounixsocket",
			"--setParameter", "diagnosticDataCollectionEnabled=false",
		},
	}
	if o.TestCommands {
		n.args = append(n.args, "--setParameter", "enableTestCommands=1")
	}
	if o.Auth {
		n.args = append(n.args, "--keyFile", keyFileName)
	}
	return n
}

// form makes a replica set of running nodes and returns its connection string.
func form(ctx context.Context, name string, nodes []*Node, configServer bool, secret string, o Options) (string, error) {
	first, err := direct(nodes[0].addr)
	if err != nil {
		return "", err
	}
	defer disconnect(ctx, first)
	addrs, list := make([]string, len(nodes)), ""
	for i, n := range nodes {
		addrs[i] = n.addr
		list += "," + n.addr
	}
	if err := initiate(ctx, first, name, addrs, configServer); err != nil {
		return "", err
	}
	if err := awaitElected(ctx, nodes, first); err != nil {
		return "", err
	}
	login, query := "", "replicaSet="+name
	if o.Auth {
		// The cluster's users are on the config server. A direct connection to a shard needs a user
		// of the shard itself.
		if err := createRoot(ctx, first, secret); err != nil {
			return "", err
		}
		login = rootUser + ":" + secret + "@"
		query += "&authSource=admin"
	}
	return "mongodb://" + login + list[1:] + "/?" + query, nil
}

// join forms the cluster: it adds the shards and stops the balancer.
func (s *Server) join(ctx context.Context) error {
	client, err := mongo.Connect(options.Client().ApplyURI(s.uri))
	if err != nil {
		return fmt.Errorf("connect to mongos: %w", err)
	}
	defer disconnect(ctx, client)
	admin := client.Database("admin")
	for _, shard := range s.shards {
		// One member suffices: the cluster discovers the others.
		list := shard.Name + "/" + shard.nodes[0].addr
		if err := admin.RunCommand(ctx, bson.D{{Key: "addShard", Value: list}, {Key: "name", Value: shard.Name}}).Err(); err != nil {
			return fmt.Errorf("add %s to the cluster: %w", shard.Name, err)
		}
	}
	// Tests place chunks themselves, and a balancer would move them at any time.
	if err := admin.RunCommand(ctx, bson.D{{Key: "balancerStop", Value: 1}}).Err(); err != nil {
		return fmt.Errorf("stop the balancer: %w", err)
	}
	return nil
}
