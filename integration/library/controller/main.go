// Command controller is the controller of the service of libraries.
package main

import (
	"dbcontroller.dev"
	"dbcontroller.dev/integration/library"
)

func main() { dbcontroller.Controller(library.Service) }
