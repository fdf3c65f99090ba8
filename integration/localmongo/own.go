package localmongo

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"dbcontroller.dev/integration/subprocess"
)

const (
	keyFileName = "keyfile"
	rootUser    = "root"
	// startLimit bounds a start, even if its context has no deadline. A healthy start takes
	// seconds, even on a busy machine.
	startLimit = 5 * time.Minute
)

// startOwn runs mongods, and a mongos for a sharded cluster, in a new data folder.
func startOwn(ctx context.Context, p place, o Options) (*Server, error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	startShape := startNodes
	if o.Shards > 0 {
		startShape = startSharded
	}
	const tries = 3
	for try := 1; ; try++ {
		s, err := startShape(ctx, p, o)
		if err == nil {
			return s, nil
		}
		// Another process can take a port between FreePorts and mongod's bind. Only that deserves a
		// retry.
		if !errors.Is(err, errPortTaken) || try == tries {
			return nil, err
		}
		report(o.Log, "%v; trying other ports", err)
	}
}

func startNodes(ctx context.Context, p place, o Options) (_ *Server, err error) {
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

	ports, err := subprocess.FreePorts(o.Nodes)
	if err != nil {
		return nil, err
	}
	secret := newSecret()
	for i, port := range ports {
		dir, err := makeNodeDir(data.path, i, secret, o)
		if err != nil {
			return nil, err
		}
		s.nodes = append(s.nodes, newNode(p, dir, port, setName, o))
	}
	if err := startAll(ctx, s.nodes); err != nil {
		return nil, err
	}
	return s, s.configure(ctx, o, secret)
}

// makeNodeDir creates the folder of node i, with the key file for authentication between members.
func makeNodeDir(parent string, i int, secret string, o Options) (string, error) {
	dir := filepath.Join(parent, fmt.Sprintf("node%d", i))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", fmt.Errorf("make node folder: %w", err)
	}
	// mongod refuses a key file that others can read.
	if o.Auth && !o.Standalone {
		if err := os.WriteFile(filepath.Join(dir, keyFileName), []byte(secret), 0o400); err != nil {
			return "", fmt.Errorf("write key file: %w", err)
		}
	}
	return dir, nil
}

// startAll starts nodes at the same time, and returns when all accept connections.
func startAll(ctx context.Context, nodes []*Node) error {
	// All start before the first wait, so that they come up in parallel.
	for _, n := range nodes {
		if err := n.start(); err != nil {
			return err
		}
	}
	for _, n := range nodes {
		if err := n.awaitListening(ctx); err != nil {
			return err
		}
	}
	return nil
}

// configure forms the replica set, if one is wanted, creates the user and sets the URI.
func (s *Server) configure(ctx context.Context, o Options, secret string) error {
	first, err := direct(s.nodes[0].addr)
	if err != nil {
		return err
	}
	defer disconnect(ctx, first)
	query := "directConnection=true"
	addrs := make([]string, len(s.nodes))
	for i, n := range s.nodes {
		addrs[i] = n.addr
	}
	if !o.Standalone {
		query = "replicaSet=" + setName
		if err := initiate(ctx, first, setName, addrs, false); err != nil {
			return err
		}
	}
	// Only a primary can create the user.
	if err := awaitElected(ctx, s.nodes, first); err != nil {
		return err
	}
	login := ""
	if o.Auth {
		// Without any user, the server allows a local connection to create the first one.
		if err := createRoot(ctx, first, secret); err != nil {
			return err
		}
		login = rootUser + ":" + secret + "@"
		query += "&authSource=admin"
	}
	s.uri = "mongodb://" + login + strings.Join(addrs, ",") + "/?" + query
	return nil
}

// awaitElected returns when the first node, which the client reaches, is primary and all others are
// secondaries.
func awaitElected(ctx context.Context, nodes []*Node, first *mongo.Client) error {
	if len(nodes) > 1 {
		// Several new members would first wait for an election timeout.
		err := poll(ctx, func() error {
			if err := awaitRole(ctx, first, true); err != nil {
				return err
			}
			return first.Database("admin").RunCommand(ctx, bson.D{{Key: "replSetStepUp", Value: 1}}).Err()
		})
		if err != nil {
			return fmt.Errorf("elect the first node: %w", err)
		}
	}
	if err := awaitRole(ctx, first, false); err != nil {
		return err
	}
	for _, n := range nodes[1:] {
		client, err := direct(n.addr)
		if err != nil {
			return err
		}
		err = awaitRole(ctx, client, true)
		disconnect(ctx, client)
		if err != nil {
			return err
		}
	}
	return nil
}

// newServer returns a server without nodes. Its stop removes the data.
func newServer(data *dataDir) *Server {
	s := &Server{}
	s.stop = func(context.Context) error {
		// The data will not be read again, so mongod need not flush them.
		for _, n := range s.nodes {
			n.Kill()
		}
		return data.remove()
	}
	return s
}

func createRoot(ctx context.Context, client *mongo.Client, password string) error {
	cmd := bson.D{
		{Key: "createUser", Value: rootUser},
		{Key: "pwd", Value: password},
		{Key: "roles", Value: bson.A{"root"}},
	}
	if err := client.Database("admin").RunCommand(ctx, cmd).Err(); err != nil {
		return fmt.Errorf("create user: %w", err)
	}
	return nil
}

func newSecret() string {
	b := make([]byte, 24)
	_, _ = rand.Read(b) // never fails, by its documentation
	return hex.EncodeToString(b)
}
