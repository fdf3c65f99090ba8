// Command server is the sample services, bbs and secrets: both API versions of each, on
// whichever version is active.
package main

import (
	"dbcontroller.dev"
	"dbcontroller.dev/cmd/server/samples"
)

func main() { dbcontroller.Serve(samples.Service()) }
