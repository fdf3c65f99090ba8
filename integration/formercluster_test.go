package integration_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"dbcontroller.dev/appclient"
	"dbcontroller.dev/integration/localmongo"
)

// Each of these opens an application with one connection, then reads and writes. It prints one
// line for each.
const (
	wrongNode = `
import { MongoClient } from 'mongodb'
import { connect } from './index.js'
const mongo = new MongoClient(process.env.MONGO_URI)
const app = await connect({ controllers: [process.env.CONTROLLERS], application: 'restarted', mongo })
const line = (ok, call) => call.then(() => console.log(ok), err => console.log(err.name + ': ' + err.message))
await line('read', app.read(at => at.collection('orders').findOne({ _id: 'first' })))
await line('written', app.write(at => at.collection('orders').insertOne({ _id: 'node' })))
await app.close()
await mongo.close()
`
	wrongPython = `
import os, pymongo, dbcontroller_client
mongo = pymongo.MongoClient(os.environ["MONGO_URI"])
app = dbcontroller_client.connect(controllers=[os.environ["CONTROLLERS"]], application="restarted", mongo=mongo)
def line(ok, call, fn):
    try:
        call(fn)
        print(ok)
    except Exception as err:
        print(f"{type(err).__name__}: {err}")
line("read", app.read, lambda at: at.collection("orders").find_one({"_id": "first"}))
line("written", app.write, lambda at: at.collection("orders").insert_one({"_id": "python"}))
app.close()
`
)

// TestRestartAtTheFormerCluster: the data moved to another cluster. Then applications restart that
// are connected to the former cluster alone. Each client refuses to read and to write, and creates
// nothing there. With a connection to the new cluster alone it works.
func TestRestartAtTheFormerCluster(t *testing.T) {
	t.Parallel()
	nodeClient(t)
	python(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s := newSystem(ctx, t, settings{
		service: "shop", lens: "lens: 1\noperations: [rename: {from: state, to: status}]\n",
		kinds: "[{from: orders, to: orders, lens: packages.yaml}]",
		uris:  map[string]string{"v2": start(ctx, t, localmongo.Options{Own: true}).URI()},
	})
	collections{t}.insert(s.db["v1"], "orders", `{"_id":"first","state":"NEW"}`)
	api, _ := s.controller("controller", breakPoint{}).ready(ctx).addresses()
	s.beginTo(ctx, "v2")
	s.await(ctx, "the flip to v2", flipped("v2"))

	run := func(t *testing.T, cmd *exec.Cmd, uri string) []string {
		t.Helper()
		if cmd.Env == nil {
			cmd.Env = os.Environ()
		}
		cmd.Env = append(cmd.Env, "MONGO_URI="+uri, "CONTROLLERS="+api)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return strings.Split(strings.TrimSpace(string(out)), "\n")
	}
	clients := map[string]func(t *testing.T, version string) []string{
		"go": func(t *testing.T, version string) []string { return s.restarted(ctx, t, api, s.db[version].Client()) },
		"node": func(t *testing.T, version string) []string {
			cmd := exec.CommandContext(ctx, "node", "--input-type=module", "-e", wrongNode)
			cmd.Dir = nodeFolder
			return run(t, cmd, s.uris[version])
		},
		"python": func(t *testing.T, version string) []string {
			return run(t, pythonCommand(ctx, t, "-c", wrongPython), s.uris[version])
		},
	}
	for name, restart := range clients {
		t.Run(name, func(t *testing.T) {
			lines := restart(t, "v1")
			if len(lines) != 2 {
				t.Fatalf("a read and a write at the former cluster print %q, want two lines", lines)
			}
			for _, line := range lines {
				if !strings.Contains(line, "with UUID") || !strings.Contains(line, "connect it to") {
					t.Errorf("at the former cluster: %s", line)
				}
			}
			if names, err := s.db["v1"].Client().Database(s.db["v2"].Name()).ListCollectionNames(ctx, bson.D{}); err != nil || len(names) > 0 {
				t.Errorf("the former cluster has collections %v of v2, %v", names, err)
			}
			if lines := restart(t, "v2"); strings.Join(lines, " ") != "read written" {
				t.Errorf("at the new cluster: %q", lines)
			}
		})
	}
}

// restarted is the same in Go.
func (s *system) restarted(ctx context.Context, t *testing.T, api string, client *mongo.Client) (lines []string) {
	t.Helper()
	app, err := appclient.Open(ctx, appclient.Config{Controllers: []string{api}, Application: "restarted", Mongo: client})
	if err != nil {
		t.Fatal(err)
	}
	line := func(ok string, err error) {
		if err != nil {
			ok = err.Error()
		}
		lines = append(lines, ok)
	}
	line("read", app.Read(ctx, func(ctx context.Context, at appclient.Place) error {
		orders, err := at.Collection("orders")
		if err != nil {
			return err
		}
		return orders.FindOne(ctx, bson.D{{Key: "_id", Value: "first"}}).Err()
	}))
	line("written", app.Write(ctx, func(ctx context.Context, at appclient.Place) error {
		orders, err := at.Collection("orders")
		if err == nil {
			_, err = orders.InsertOne(ctx, bson.D{{Key: "_id", Value: "go"}})
		}
		return err
	}))
	if err := app.Close(ctx); err != nil {
		t.Error(err)
	}
	return lines
}
