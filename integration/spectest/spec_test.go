package spectest_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"dbcontroller.dev/integration/localmongo"
	"dbcontroller.dev/integration/spectest"
	"dbcontroller.dev/internal/proxy"
)

// build builds the driver's tests.
func build(ctx context.Context, t *testing.T) *spectest.Tests {
	t.Helper()
	tests, err := spectest.Build(ctx, t.TempDir())
	switch {
	case errors.Is(err, spectest.ErrNoModule) && os.Getenv("CI") == "":
		t.Skip("the drivers' specifications cannot be had:", err)
	case err != nil:
		t.Fatal(err)
	}
	return tests
}

func start(ctx context.Context, t *testing.T, o localmongo.Options) string {
	t.Helper()
	o.Own, o.TestCommands = true, true
	server, err := localmongo.Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	})
	return server.URI()
}

// startProxies starts two proxies before a cluster, since some tests need two routers. It returns their
// connection string.
func startProxies(ctx context.Context, t *testing.T, uri string, deployments []proxy.Deployment) string {
	t.Helper()
	// Fail points make a server call itself no primary. A driver learns that it still is one when it asks
	// next, and the tests have their own clients ask often.
	uri += "&heartbeatFrequencyMS=500"
	for i := range deployments {
		deployments[i].URIs = map[string]string{"v1": uri}
	}
	var addresses []string
	for range 2 {
		p, err := proxy.New(ctx, proxy.Config{Upstream: uri, Deployments: deployments})
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan error, 1)
		go func() { served <- p.Serve(l) }()
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
			defer cancel()
			if err := p.Close(ctx); err != nil {
				t.Error(err)
			}
			if err := <-served; err != nil {
				t.Error(err)
			}
		})
		addresses = append(addresses, l.Addr().String())
	}
	return "mongodb://" + strings.Join(addresses, ",") + "/"
}

// deployAll makes a deployment for each database of the tests.
func deployAll(t *testing.T, tests *spectest.Tests, uri string, cases spectest.Results) (out []proxy.Deployment) {
	t.Helper()
	all, err := tests.Collections(cases)
	if err != nil {
		t.Fatal(err)
	}
	for database, collections := range all {
		if database != "admin" {
			out = append(out, deploy(t, database, collections, uri))
		}
	}
	return out
}

// run runs tests. What they print goes into the folder that DBCONTROLLER_SPEC_OUTPUT names.
func run(ctx context.Context, t *testing.T, tests *spectest.Tests, uri string, what []spectest.Selection) spectest.Results {
	t.Helper()
	var said bytes.Buffer
	got, err := tests.Run(ctx, uri, what, &said)
	if folder := os.Getenv("DBCONTROLLER_SPEC_OUTPUT"); folder != "" {
		if err := os.WriteFile(filepath.Join(folder, strings.ReplaceAll(t.Name(), "/", "-")), said.Bytes(), 0o600); err != nil {
			t.Error(err)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// bounded is the part of the tests that each run of all tests makes: those of the quick suites, and of
// transactions what a proxy has most to do with.
var bounded = []spectest.Selection{
	{Package: spectest.All[0].Package, Run: `^TestUnifiedSpec$/^(crud|sessions|retryable-writes|collection-management)$`},
	{Run: `^TestUnifiedSpecs$/^transactions$/^legacy$/^(mongos-recovery-token|abort|retryable-writes)\.json$`},
}

// TestThroughProxy runs a part of the suites with collections that move.
func TestThroughProxy(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	tests := build(ctx, t)
	all, err := spectest.Read(results)
	if err != nil {
		t.Fatal(err)
	}
	uri := start(ctx, t, localmongo.Options{})
	uri = startProxies(ctx, t, uri, deployAll(t, tests, uri, all[spectest.Fixed]))
	all[spectest.Moving] = run(ctx, t, tests, uri, bounded)
	if n := len(all[spectest.Moving]); n < 250 {
		t.Errorf("%d cases ran, and there are more", n)
	}
	check(t, all, spectest.Moving, false)
}

// results holds the outcome of each case in each form.
const results = "testdata/results.txt"

// TestInFull runs all suites in the forms that DBCONTROLLER_SPEC names, and writes the results.
func TestInFull(t *testing.T) {
	forms := strings.Fields(os.Getenv("DBCONTROLLER_SPEC"))
	if len(forms) == 0 {
		t.Skip("it takes a quarter of an hour: run 'make spec'")
	}
	tests := build(t.Context(), t)
	all, err := spectest.Read(results)
	if err != nil {
		t.Fatal(err)
	}
	for _, form := range forms {
		t.Run(form, func(t *testing.T) {
			ctx := t.Context()
			options := localmongo.Options{}
			if form == spectest.Router {
				options = localmongo.Options{Shards: 1, Routers: 2}
			}
			uri := start(ctx, t, options)
			switch form {
			case spectest.Fixed:
				uri = startProxies(ctx, t, uri, nil)
			case spectest.Moving:
				uri = startProxies(ctx, t, uri, deployAll(t, tests, uri, all[spectest.Fixed]))
			}
			all[form] = run(ctx, t, tests, uri, spectest.All)
		})
	}
	if err := spectest.Write(results, all); err != nil {
		t.Fatal(err)
	}
	page, err := spectest.Page(all)
	if err == nil {
		err = os.WriteFile("../../docs/specification.md", []byte(page), 0o644) // #nosec G306 -- it is committed
	}
	if err != nil {
		t.Error(err)
	}
	check(t, all, spectest.Fixed, true)
	check(t, all, spectest.Moving, true)
}

// check compares the results through proxies with those without.
func check(t *testing.T, all map[string]spectest.Results, form string, whole bool) {
	t.Helper()
	expected, err := spectest.Expected(form)
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range spectest.Compare(all[spectest.Router], all[form], expected, whole) {
		t.Errorf("%s: %s", form, wrong)
	}
}
