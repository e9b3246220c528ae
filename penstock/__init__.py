"""Penstock, a server for large language models; its packages lie beside this folder, which links to them."""
