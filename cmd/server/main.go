// Command server runs the sample services bbs and secrets. It serves both API versions of each,
// whichever version is active.
package main

import (
	"dbcontroller.dev"
	"dbcontroller.dev/apiversion/rest"
	"dbcontroller.dev/internal/program/server/samples"
	"dbcontroller.dev/resource/localsearch"
)

func main() {
	service := samples.Service()
	service.Search = localsearch.Engine
	service.REST = rest.Front
	dbcontroller.Serve(service)
}
