// Command server is the server of the library service.
package main

import (
	"dbcontroller.dev"
	"dbcontroller.dev/integration/library"
)

func main() { dbcontroller.Serve(library.Service) }
