// Command server is the server of the service of libraries.
package main

import (
	"dbcontroller.dev"
	"dbcontroller.dev/integration/library"
)

func main() { dbcontroller.Serve(library.Service) }
