if (window.SwaggerUIBundle) SwaggerUIBundle({
  url: "api-doc/openapi.json",
  dom_id: "#routes",
  deepLinking: true,
  tryItOutEnabled: true,
  validatorUrl: null,  // no document is sent to a validator elsewhere
});
else document.querySelector("#absent").hidden = false;
