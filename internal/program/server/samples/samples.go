// Package samples combines the sample services bbs and secrets into one service, for their server
// and their controllers.
//
// It is not for users and may change with any version.
package samples

import (
	"flag"
	"net/http"
	"os"
	"time"

	"connectrpc.com/connect"

	"dbcontroller.dev"
	"dbcontroller.dev/examples/bbs"
	"dbcontroller.dev/examples/bbs/task"
	"dbcontroller.dev/examples/secrets"
	"dbcontroller.dev/vrunner"
)

// Service returns both sample services in both versions, without an engine for search. Over v2 data, bbs serves v1 by translating
// requests. The secrets service serves v1 with its own handlers over an adapted store.
func Service() dbcontroller.Service {
	var keep time.Duration     // time that expired secrets stay; 0: for ever
	var converge time.Duration // interval of looking at all processes and tasks; 0: never
	var expire time.Duration   // time that completed tasks stay
	// Flags are parsed after this function returns, so read their values when a stack starts.
	controllers := func(janitor, reconciler func(vrunner.Store, time.Duration) vrunner.Controller, tasks func(vrunner.Store, task.Config) vrunner.Controller) func(vrunner.Store) []vrunner.Controller {
		return func(data vrunner.Store) (out []vrunner.Controller) {
			if keep > 0 {
				out = append(out, janitor(data, keep))
			}
			if converge > 0 {
				out = append(out, reconciler(data, converge), tasks(data, task.Config{Every: converge, ExpireCompleted: expire}))
			}
			return out
		}
	}
	var audit *bbs.Audit // of v1 calls to bbs over v2; nil: none
	secret := secrets.Services()
	return dbcontroller.Service{
		Name: "samples",
		Versions: []dbcontroller.Version{
			{Name: bbs.V1, Search: map[string]dbcontroller.Searched{secrets.Kind: {Fields: secrets.SearchedV1()}}, APIs: append(bbs.ServicesV1(), secret[:1]...), Controllers: controllers(secrets.JanitorV1, bbs.ControllerV1, bbs.TasksV1)},
			{Name: bbs.V2, APIs: append(bbs.ServicesV2(), secret[1:]...), Controllers: controllers(secrets.JanitorV2, bbs.ControllerV2, bbs.TasksV2),
				Search:       map[string]dbcontroller.Searched{secrets.Kind: {Fields: secrets.SearchedV2()}},
				Transformers: append(bbs.Specs(), secrets.Specs()...)},
		},
		Stacks: func(version string, stores map[string]vrunner.Store, opts ...connect.HandlerOption) http.Handler {
			return stack(version, stores, audit, opts...)
		},
		Watches: func(mux *http.ServeMux, r *vrunner.Runner, opts ...connect.HandlerOption) {
			bbs.MountWatches(mux, r, opts...)
			secrets.MountWatches(mux, r, opts...)
		},
		Flags: func(fs *flag.FlagSet) {
			fs.DurationVar(&keep, "delete-expired", 0, "delete secrets that expired longer ago than this, one server at a time; 0: never")
			fs.DurationVar(&converge, "converge", 0, "interval for starting, replacing and retiring instances of processes, and for the callbacks of tasks, one server at a time; 0: never")
			fs.DurationVar(&expire, "expire-tasks", time.Hour, "delete completed tasks after this time, even if their callbacks never succeeded")
			fs.Func("audit", "file for requests and answers of v1 clients of bbs while v2 is active, in both versions, without values of environment variables", func(path string) error {
				f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600) // #nosec G304 -- operators name the file; it stays open until the process ends
				if err == nil {
					audit = bbs.NewAudit(f)
				}
				return err
			})
		},
	}
}

// stack serves both services side by side.
func stack(version string, stores map[string]vrunner.Store, audit *bbs.Audit, opts ...connect.HandlerOption) http.Handler {
	process := bbs.StackV1(stores[bbs.V1], stores[bbs.V2], opts...)
	secret := secrets.StackV1(stores[secrets.V1], stores[secrets.V2], opts...)
	// StackV1 serves both APIs over v1 data. Over v2 data, other handlers do.
	if version == bbs.V2 {
		process = bbs.AuditedV2(stores[bbs.V2], audit, opts...)
		secret = secrets.StackV2(stores[secrets.V2], opts...)
	}
	both := http.NewServeMux()
	both.Handle("/", process)
	for _, s := range secrets.Services() {
		both.Handle("/"+string(s.FullName())+"/", secret)
	}
	return both
}
