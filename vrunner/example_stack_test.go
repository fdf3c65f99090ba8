package vrunner_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/coord/memcoord"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
	"dbcontroller.dev/vrunner"
)

// tidied is the stack of noting, with a note that the version starts with, and a
// controller that removes drafts.
func tidied(version string, views map[string]*vrunner.View) vrunner.Stack {
	s, notes := noting(version, views), views[version]
	s.Fixtures = []record.Record{{Kind: "notes", Key: record.StringKey("welcome"), Doc: doc("welcome", "hello")}}
	s.Controllers = []vrunner.Controller{{Name: "no-drafts", Run: func(ctx context.Context) error {
		changes, err := notes.Changes(ctx, "notes")
		if err != nil {
			return err
		}
		defer changes.Close()
		for {
			drafts, err := notes.List(ctx, "notes", "draft-", "", 0)
			if err != nil {
				return err
			}
			for _, d := range drafts { // at most 1000; what remains is dirty again
				if err := notes.Write(ctx, []record.Mutation{{Kind: "notes", Key: d.Key}}); err != nil {
					return err
				}
			}
			if _, err := changes.Next(ctx); err != nil {
				return err // a switch, or the end of the server; ErrLost: it is run again
			}
		}
	}}}
	return s
}

// Example_stack serves a version with start data and background work.
func Example_stack() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	deployments, db := deployment.New(memcoord.New(), "services/notes/deployments/home", deployment.Config{}), memstore.New()
	d, err := deployments.Create(ctx, "v1", 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	ns, err := syncer.Provision(ctx, db, d, "v1", "mem:notes", []record.KindSpec{{Name: "notes"}}, func(string) record.FenceClass { return "" })
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := deployments.Apply(ctx, upgradestate.AnnounceNamespace{Namespace: ns}); err != nil {
		fmt.Println(err)
		return
	}
	runner := vrunner.New(consumer{deployments, &announced{}}, map[string]vrunner.Database{"v1": {Client: db, Watcher: db}},
		tidied, vrunner.Config{ID: "server-1"}, nil)
	stopped := make(chan struct{})
	go func() { defer close(stopped); _ = runner.Run(ctx) }() // ends with ctx
	for runner.Ready() != nil {
		<-time.After(time.Millisecond)
	}

	show := func(name string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		runner.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/"+name, nil))
		return w
	}
	fmt.Println(show("welcome").Body)
	runner.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPut, "/draft-1", strings.NewReader("buy m")))
	for show("draft-1").Code != http.StatusNotFound && ctx.Err() == nil {
		<-time.After(time.Millisecond)
	}
	fmt.Println("draft-1 is gone:", ctx.Err() == nil)
	stop()
	<-stopped
	// Output:
	// hello
	// draft-1 is gone: true
}
