package app

import (
	"net/http"

	"dbcontroller/apiversion"
	"dbcontroller/sample/bbs"
	"dbcontroller/sample/secrets"
	"dbcontroller/vrunner"
)

// handler serves the API: watches go on over a flip, in front of the runner, and all else
// is the runner's. usage counts who calls which version.
func handler(r *vrunner.Runner, usage *apiversion.Usage) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", r)
	bbs.MountWatches(mux, r, bounded)
	secrets.MountWatches(mux, r, bounded)
	return usage.Handler(mux)
}
