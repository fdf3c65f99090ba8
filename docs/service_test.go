package docs_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/cmd/dbcontroller/cli"
	"dbcontroller.dev/config"
	"dbcontroller.dev/coord"
	"dbcontroller.dev/deployment"
	"dbcontroller.dev/record/mongostore"
	"dbcontroller.dev/sample/secrets"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/vrunner"
)

// The functions of the guide: they are compiled, and run in cmd/server and
// cmd/dbcontroller in their longer forms.
var (
	_ = serve
	_ = control
)

// serve is a server: both versions of the API, on whichever version is active.
func serve(ctx context.Context, cfg config.Config, store coord.Store, id string, l net.Listener, log *zap.Logger) error {
	databases := map[string]vrunner.Database{}
	for _, db := range cfg.DBs {
		ns, err := mongostore.Open(ctx, mongostore.Config{
			URI: db.Endpoint.Reveal(), Database: db.Database, PoolSize: db.PoolSize, AppName: "secrets", Log: log,
		})
		if err != nil {
			return err
		}
		defer ns.Close(context.WithoutCancel(ctx)) //nolint:errcheck // the process ends
		databases[db.Version] = vrunner.Database{Client: ns.Client(), Watcher: ns}
	}
	deployments := deployment.New(store, cfg.Deployment, deployment.Config{Log: log})
	presence := deployment.NewPresence(deployments)
	runner := vrunner.New(struct {
		*deployment.Store
		*deployment.Presence
	}{deployments, presence}, databases, stack, vrunner.Config{ID: id}, log)
	usage := apiversion.NewUsage(apiversion.UsageConfig{Services: secrets.Services()}) // a prometheus.Collector, too

	mux := http.NewServeMux()
	mux.Handle("/", runner)
	secrets.MountWatches(mux, runner) // in front of the runner: they go on over a flip
	server := &http.Server{Handler: usage.Handler(mux), ReadHeaderTimeout: 10 * time.Second, Protocols: new(http.Protocols)}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true) // for gRPC without TLS

	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return runner.Run(ctx) })
	g.Go(func() error { return presence.Run(ctx) })
	g.Go(func() error {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	g.Go(func() error {
		<-ctx.Done()
		return server.Close()
	})
	if err := g.Wait(); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// stack builds the handlers of the version that is active.
func stack(version string, views map[string]*vrunner.View) vrunner.Stack {
	v1, v2 := vrunner.StoreOf(views[secrets.V1]), vrunner.StoreOf(views[secrets.V2])
	h := secrets.StackV1(v1, v2)
	if version == secrets.V2 {
		h = secrets.StackV2(v2)
	}
	return vrunner.Stack{Handler: h, Write: func(r *http.Request) bool { return secrets.IsWrite(r.URL.Path) }}
}

// control is the main function of a controller that knows the service's transformers.
func control() {
	cli.Main(func(r *transform.Registry) error {
		return r.Add(secrets.V1, secrets.V2, secrets.Specs()...)
	})
}
