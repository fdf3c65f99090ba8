// Package samples is the sample services, bbs and secrets, in one: what their server and
// their controllers are made of.
//
// It is not for users and may change with any version.
package samples

import (
	"net/http"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/pflag"

	"dbcontroller.dev"
	"dbcontroller.dev/sample/bbs"
	"dbcontroller.dev/sample/secrets"
	"dbcontroller.dev/vrunner"
)

// Service is both in both versions. Of bbs v1 is served over v2 data by translated requests,
// of secrets by its own handlers over an adapted store.
func Service() dbcontroller.Service {
	var keep time.Duration // how long expired secrets stay; 0: for ever
	janitor := func(of func(vrunner.Store, time.Duration) vrunner.Controller) func(vrunner.Store) []vrunner.Controller {
		return func(data vrunner.Store) []vrunner.Controller {
			if keep <= 0 {
				return nil
			}
			return []vrunner.Controller{of(data, keep)}
		}
	}
	process, secret := bbs.Services(), secrets.Services()
	return dbcontroller.Service{
		Name: "samples",
		Versions: []dbcontroller.Version{
			{Name: bbs.V1, APIs: append(process[:1:1], secret[:1]...), Controllers: janitor(secrets.JanitorV1)},
			{Name: bbs.V2, APIs: append(process[1:2:2], secret[1:]...), Controllers: janitor(secrets.JanitorV2),
				Transformers: append(bbs.Specs(), secrets.Specs()...)},
		},
		Stacks: stack,
		Watches: func(mux *http.ServeMux, r *vrunner.Runner, opts ...connect.HandlerOption) {
			bbs.MountWatches(mux, r, opts...)
			secrets.MountWatches(mux, r, opts...)
		},
		Flags: func(fs *pflag.FlagSet) {
			fs.DurationVar(&keep, "delete-expired", 0, "delete secrets that expired longer ago than this, one server at a time; 0: never")
		},
	}
}

// stack has both services side by side.
func stack(version string, stores map[string]vrunner.Store, opts ...connect.HandlerOption) http.Handler {
	process := bbs.StackV1(stores[bbs.V1], stores[bbs.V2], opts...)
	secret := secrets.StackV1(stores[secrets.V1], stores[secrets.V2], opts...)
	if version == bbs.V2 {
		process = bbs.StackV2(stores[bbs.V2], opts...)
		secret = secrets.StackV2(stores[secrets.V2], opts...)
	}
	both := http.NewServeMux()
	both.Handle("/", process)
	for _, s := range secrets.Services() {
		both.Handle("/"+string(s.FullName())+"/", secret)
	}
	return both
}
