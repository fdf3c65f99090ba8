package vrunner_test

import (
	"context"
	"fmt"
	"io"
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

// noting is the stack of a version: PUT stores a note, anything else shows it.
func noting(version string, views map[string]*vrunner.View) vrunner.Stack {
	notes := views[version]
	serve := func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, "/")
		if r.Method != http.MethodPut {
			rec, err := notes.Get(r.Context(), "notes", name)
			if err != nil {
				http.Error(w, err.Error(), http.StatusNotFound)
				return
			}
			_, _ = io.WriteString(w, rec.Doc.Lookup("value").StringValue())
			return
		}
		text, _ := io.ReadAll(r.Body)
		m := record.Mutation{Kind: "notes", Key: record.StringKey(name), Doc: doc(name, string(text))}
		if err := notes.Write(r.Context(), []record.Mutation{m}); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	}
	return vrunner.Stack{
		Handler: http.HandlerFunc(serve),
		Write:   func(r *http.Request) bool { return r.Method == http.MethodPut },
	}
}

// Example serves one version, and follows its changes.
func Example() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	// A controller makes the Deployment and its namespace.
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

	var views map[string]*vrunner.View
	runner := vrunner.New(consumer{deployments, &announced{}}, map[string]vrunner.Database{"v1": {Client: db, Watcher: db}},
		func(version string, vs map[string]*vrunner.View) vrunner.Stack {
			views = vs
			return noting(version, vs)
		},
		vrunner.Config{ID: "server-1"}, nil)
	stopped := make(chan struct{})
	go func() { defer close(stopped); _ = runner.Run(ctx) }() // ends with ctx
	for runner.Ready() != nil {
		<-time.After(time.Millisecond)
	}

	changes, err := views["v1"].Changes(ctx, "notes") // first subscribe, then list, then follow
	if err != nil {
		fmt.Println(err)
		return
	}
	runner.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPut, "/todo", strings.NewReader("buy milk")))
	dirty, err := changes.Next(ctx)
	fmt.Println(dirty, err)
	shown := httptest.NewRecorder()
	runner.ServeHTTP(shown, httptest.NewRequest(http.MethodGet, "/todo", nil))
	fmt.Println(shown.Body)
	changes.Close()
	stop()
	<-stopped
	// Output:
	// [{notes todo}] <nil>
	// buy milk
}
