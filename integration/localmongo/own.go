package localmongo

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

const (
	keyFileName = "keyfile"
	rootUser    = "root"
	// startLimit bounds a start whose context has no deadline. A healthy start
	// takes seconds even on a busy machine.
	startLimit = 2 * time.Minute
)

// startOwn runs mongods, and a mongos for a sharded cluster, in a fresh data folder.
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

	ports, err := freePorts(o.Nodes)
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

// makeNodeDir makes the folder of the node with number i, with the key file that it
// needs to be believed by its neighbours.
func makeNodeDir(parent string, i int, secret string, o Options) (string, error) {
	dir := filepath.Join(parent, fmt.Sprintf("node%d", i))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", fmt.Errorf("make node folder: %w", err)
	}
	if o.Auth && !o.Standalone {
		if err := os.WriteFile(filepath.Join(dir, keyFileName), []byte(secret), 0o400); err != nil {
			return "", fmt.Errorf("write key file: %w", err)
		}
	}
	return dir, nil
}

// startAll starts nodes at the same time and returns when all accept connections.
func startAll(ctx context.Context, nodes []*Node) error {
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

// configure turns running nodes into the wanted shape and sets the URI.
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
	if err := awaitElected(ctx, s.nodes, first); err != nil {
		return err
	}
	login := ""
	if o.Auth {
		// The server lets a local connection create the first user.
		if err := createRoot(ctx, first, secret); err != nil {
			return err
		}
		login = rootUser + ":" + secret + "@"
		query += "&authSource=admin"
	}
	s.uri = "mongodb://" + login + strings.Join(addrs, ",") + "/?" + query
	return nil
}

// awaitElected returns when the first of nodes, which the client reaches, is primary and
// all others follow.
func awaitElected(ctx context.Context, nodes []*Node, first *mongo.Client) error {
	if len(nodes) > 1 {
		// Left alone, several fresh members wait for an election timeout.
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

// newServer is a server without nodes yet, over the data that it removes when it stops.
func newServer(data *dataDir) *Server {
	s := &Server{}
	s.stop = func(context.Context) error {
		// Nobody will read the data again, so there is no reason to let
		// mongod flush it.
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

// freePorts returns n different ports of 127.0.0.1 that were free a moment ago.
func freePorts(n int) ([]int, error) {
	ports := make([]int, n)
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find free port: %w", err)
		}
		// Held until all are chosen, so that they differ.
		defer l.Close()
		ports[i] = l.Addr().(*net.TCPAddr).Port
	}
	return ports, nil
}

func newSecret() string {
	b := make([]byte, 24)
	_, _ = rand.Read(b) // never fails, by its documentation
	return hex.EncodeToString(b)
}
